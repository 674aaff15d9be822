package request

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNamesOver: entries of the upper table take precedence, entries only in the lower one count
// too, and neither table is changed.
func TestNamesOver(t *testing.T) {
	upper := Names{Objectives: map[string]int{"gold": 5}, Rewrites: map[string]Rewrite{"m": {{"a", 1}}}}
	lower := Names{Objectives: map[string]int{"gold": 1, "batch": -1}, Rewrites: map[string]Rewrite{"m": {{"b", 1}}, AnyModel: {{"c", 1}}}}
	got := upper.Over(lower)
	want := Names{
		Objectives: map[string]int{"gold": 5, "batch": -1},
		Rewrites:   map[string]Rewrite{"m": {{"a", 1}}, AnyModel: {{"c", 1}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if lower.Objectives["gold"] != 1 || len(upper.Objectives) != 1 {
		t.Error("merging changed what was merged")
	}
	if diff := cmp.Diff(upper, upper.Over(Names{})); diff != "" {
		t.Errorf("over nothing (-want +got):\n%s", diff)
	}
	for model, target := range map[string]string{"m": "a", "other": "c"} {
		if got := got.Target(model, 7); got != target {
			t.Errorf("target of %s: %q, want %q", model, got, target)
		}
	}
	if got := upper.Target("other", 7); got != "" {
		t.Errorf("target without a rewrite: %q", got)
	}
}
