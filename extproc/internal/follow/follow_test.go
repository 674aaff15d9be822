package follow

import (
	"strings"
	"testing"
	"time"
)

func TestAnswerCounts(t *testing.T) {
	now := time.Unix(1000, 0)
	one, list := []string{"10.0.0.1:80"}, []string{"10.0.0.1:80", "10.0.0.2:80"}
	var tally Counter
	warnings := func(n int, sent []string, served, label string) (count int) {
		t.Helper()
		for range n {
			by, warn := tally.Add(sent, served, now)
			if by != label {
				t.Fatalf("%v served by %q: %s, want %s", sent, served, by, label)
			}
			if warn {
				count++
			}
		}
		return count
	}
	if warnings(1000, one, "", Unknown)+warnings(50, one, "10.0.0.1:80", Chosen)+warnings(9, list, "10.0.0.2:80", Next)+
		warnings(30, one, "10.0.0.9:80", Unnamed) > 0 || tally.Problem() != "" {
		t.Errorf("the proxy mostly obeys: %q", tally.Problem())
	}
	if n := warnings(200, one, "10.0.0.9:80", Unnamed); n != 1 || !strings.Contains(tally.Problem(), "metadata") {
		t.Errorf("%d warnings, %q", n, tally.Problem())
	}
	now = now.Add(warnEvery)
	if n := warnings(300, list, "10.0.0.9:80", Unnamed); n != 1 || !strings.Contains(tally.Problem(), "single address") {
		t.Errorf("a minute later: %d warnings, %q", n, tally.Problem())
	}
	if warnings(300, one, "10.0.0.1:80", Chosen) != 0 || tally.Problem() != "" {
		t.Errorf("it obeys again: %q", tally.Problem())
	}
}
