package extproc

import (
	"strings"
	"testing"
	"time"
)

func TestServedTally(t *testing.T) {
	now := time.Unix(1000, 0)
	one, list := []string{"10.0.0.1:80"}, []string{"10.0.0.1:80", "10.0.0.2:80"}
	var tally servedTally
	warnings := func(n int, sent []string, served, label string) (count int) {
		t.Helper()
		for range n {
			by, warn := tally.add(sent, served, now)
			if by != label {
				t.Fatalf("%v served by %q: %s, want %s", sent, served, by, label)
			}
			if warn {
				count++
			}
		}
		return count
	}
	if warnings(1000, one, "", servedUnknown)+warnings(50, one, "10.0.0.1:80", servedChosen)+warnings(9, list, "10.0.0.2:80", servedNext)+
		warnings(30, one, "10.0.0.9:80", servedElsewhere) > 0 || tally.problem() != "" {
		t.Errorf("the proxy mostly obeys: %q", tally.problem())
	}
	if n := warnings(200, one, "10.0.0.9:80", servedElsewhere); n != 1 || !strings.Contains(tally.problem(), "metadata") {
		t.Errorf("%d warnings, %q", n, tally.problem())
	}
	now = now.Add(servedWarnEvery)
	if n := warnings(300, list, "10.0.0.9:80", servedElsewhere); n != 1 || !strings.Contains(tally.problem(), "single address") {
		t.Errorf("a minute later: %d warnings, %q", n, tally.problem())
	}
	if warnings(300, one, "10.0.0.1:80", servedChosen) != 0 || tally.problem() != "" {
		t.Errorf("it obeys again: %q", tally.problem())
	}
	p := Processor{}
	p.served.add(nil, "10.0.0.1:80", now)
	if got := p.Served(); got != (ServedStatus{Unknown: 1}) {
		t.Errorf("status %+v", got)
	}
}
