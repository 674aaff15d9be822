package rules

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// For any IDs from clients, names of flows stay short, and different IDs have different names.
func TestName(t *testing.T) {
	long := strings.Repeat("é", 1<<19)
	names := map[string]bool{}
	for _, id := range []string{"", "gold", strings.Repeat("x", longestName), strings.Repeat("x", longestName+1), strings.Repeat("x", longestName+2), long + "a", long + "b", "x" + long} {
		name := Name(id)
		if len(name) > longestName || len(id) <= longestName && name != id || !utf8.ValidString(name) {
			t.Errorf("name of %d bytes is %q", len(id), name)
		}
		names[name] = true
	}
	if len(names) != 8 {
		t.Errorf("%d names for 8 flows", len(names))
	}
}
