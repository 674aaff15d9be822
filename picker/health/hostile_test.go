package health

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestHostileClientsTakeNoEndpointOut: no endpoint is ejected while its probes pass, for any share of
// requests that are declined or end without content, in any order.
func TestHostileClientsTakeNoEndpointOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "endpoints")
		s := newScript()
		for id := range n {
			s.eps[id], s.flow[id] = &Evidence{Answered: Never, Moved: Never}, &flow{good: 1, probe: "passed"}
			s.set.Join(id, "model", s.now)
		}
		for range rapid.IntRange(1, 12).Draw(t, "phases") {
			id := rapid.IntRange(0, n-1).Draw(t, "endpoint")
			cause := rapid.SampledFrom([]Cause{Declined, Invalid}).Draw(t, "cause")
			s.flow[id] = &flow{good: rapid.IntRange(0, 3).Draw(t, "good"), bad: rapid.IntRange(0, 20).Draw(t, "bad"), cause: cause, probe: "passed"}
			for range rapid.IntRange(1, 50).Draw(t, "ticks") {
				for _, line := range s.step() {
					t.Logf("%s", line)
				}
				for id := range n {
					if v := s.set.View(id); v.State == Out || v.State == Probing {
						t.Fatalf("%v after %v: endpoint %d is %v, %s", s.flow[id], s.now.Sub(time.Unix(1000, 0)), id, v.State, v.Evidence())
					}
				}
			}
		}
	})
}
