package demo

import (
	"strings"
	"testing"
	"time"
)

// TestPDVerdict: the summary says for each load whether roles pay, and fails if a request failed or no
// prompt was computed by another engine.
func TestPDVerdict(t *testing.T) {
	rows := func(ttft, tpot time.Duration, remote float64) []PDRow {
		return []PDRow{{Name: "a", Requests: 10, TTFT: [2]time.Duration{ttft, ttft}, TPOT: [2]time.Duration{tpot, tpot}, Remote: remote, Tokens: 101}}
	}
	for _, c := range []struct {
		ttft, tpot time.Duration // apart; together: 1 s and 20 ms
		want       string
	}{
		{1500 * time.Millisecond, 15 * time.Millisecond, "roles make no difference here: a whole answer takes 3.00 s together and 3.00 s apart (+0%)"},
		{1100 * time.Millisecond, 15 * time.Millisecond, "roles pay here: a whole answer takes 3.00 s together and 2.60 s apart (-13%)"},
		{1500 * time.Millisecond, 20 * time.Millisecond, "roles do not pay here: a whole answer takes 3.00 s together and 3.50 s apart (+17%)"},
	} {
		s := PDSummary{Loads: []PDLoad{{Name: "load", Together: rows(time.Second, 20*time.Millisecond, 0), Apart: rows(c.ttft, c.tpot, .5)}}}
		var b strings.Builder
		s.Write(&b)
		if !strings.Contains(b.String(), c.want) || !strings.HasSuffix(b.String(), "OK: no request failed.\n") || !s.OK() {
			t.Errorf("%s\nwant %q", b.String(), c.want)
		}
		s.Loads[0].Apart[0].Failed = 1
		b.Reset()
		if s.Write(&b); s.OK() || !strings.Contains(b.String(), "FAILED: 1 requests failed") {
			t.Errorf("a failed request: %s", b.String())
		}
	}
}
