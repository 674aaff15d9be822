//go:build engines

package engines

import (
	"fmt"
	"strings"
	"testing"
)

// TestRadixCache compares predictions from the events of SGLang's radix cache with its reuse in
// whole units. Pages below 16 tokens are followed 16 tokens at a time. With token pairs (EAGLE) the
// reuse is one unit lower for prompts that differ directly after it.
func TestRadixCache(t *testing.T) {
	var table strings.Builder
	defer func() { t.Logf("\n%s", table.String()) }()
	fmt.Fprintf(&table, "| SGLang 0.5.23: session | comparisons (with a hit) | exact in units | over (most tokens) | under |\n|---|--:|--:|--:|--:|\n")
	args := append([]string{part(t, "sglang-0.5.23")}, sessionArgs()...)
	for _, c := range sessions(t, python(t, versions[0], "radix.py", args...)) {
		fmt.Fprintf(&table, "| %s | %d (%d) | %.1f%% | %d (%d) | %d |\n", c.name, c.total, c.there,
			100*float64(c.exact())/float64(max(c.total, 1)), c.over, c.most, c.under)
		if pairs := strings.HasSuffix(c.name, "-pairs"); c.over > 0 && !pairs || c.most > 16 || c.under > 0 || c.there < 100 {
			t.Errorf("%s: %d over, %d under of %d; %s", c.name, c.over, c.under, c.total, c.first)
		}
	}
}
