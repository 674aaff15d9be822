package explain

import (
	"testing"

	"github.com/grapevine-epp/grapevine/picker/explained"
)

func TestHeldText(t *testing.T) {
	f := func(want string, held float64, matched map[string]int) {
		t.Helper()
		if got := heldText(&explained.Candidate{Matched: matched, Held: held}); got != want {
			t.Errorf("%v: %q, want %q", matched, got, want)
		}
	}
	f("none", 0, nil)
	f("gpu 1024", 1024, map[string]int{"gpu": 1024})
	f("gpu 1024, cpu 512 = 1434", 1433.6, map[string]int{"cpu": 512, "gpu": 1024})
	f("disk 100 = 0", 0, map[string]int{"disk": 100})
}
