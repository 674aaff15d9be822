package explain

import (
	"slices"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/explanation"
)

func TestHeldText(t *testing.T) {
	f := func(want string, held float64, matched map[string]int) {
		t.Helper()
		if got := heldText(&explanation.Candidate{Matched: matched, Held: held}); got != want {
			t.Errorf("%v: %q, want %q", matched, got, want)
		}
	}
	f("none", 0, nil)
	f("gpu 1024", 1024, map[string]int{"gpu": 1024})
	f("gpu 1024, cpu 512 = 1434", 1433.6, map[string]int{"cpu": 512, "gpu": 1024})
	f("disk 100 = 0", 0, map[string]int{"disk": 100})
}

// TestRanksColumn: the number of ranks is shown if an engine has several.
func TestRanksColumn(t *testing.T) {
	for ranks, want := range map[int]bool{0: false, 4: true} {
		e := &Decision{}
		e.Candidates = []explanation.Candidate{{Load: explanation.Load{Ranks: ranks}}, {}}
		got := slices.ContainsFunc(candidateColumns(e), func(c column) bool { return c.head == "RANKS" })
		if got != want {
			t.Errorf("%d ranks: a column %v", ranks, got)
		}
	}
}
