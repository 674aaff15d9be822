package replay

import (
	"testing"
	"time"
)

// TestWarmUps holds that copies which nobody waits for make a fleet of 200 cold engines with
// one text for everybody answer sooner, in the mean, at p90 and per token, and that they are
// no requests of users.
func TestWarmUps(t *testing.T) {
	phases := []phase{{200, 16 * time.Second}}
	plain, warm := playPhases(t, Default, 1, phases), playPhases(t, Warming, 1, phases)
	t.Logf("%d warm-ups, %.3f of the prompts' tokens: mean %.3f, p90 %.3f, per token %.3f times", warm.WarmUps, warm.Warmed,
		warm.TTFT.Mean/plain.TTFT.Mean, warm.TTFT.P90/plain.TTFT.P90, warm.TPOT.Mean/plain.TPOT.Mean)
	if warm.TTFT.Mean > .95*plain.TTFT.Mean || warm.TTFT.P90 > .9*plain.TTFT.P90 || warm.TPOT.Mean > .99*plain.TPOT.Mean {
		t.Error("little is gained")
	}
	if plain.WarmUps != 0 || warm.WarmUps == 0 || warm.WarmUps > 200 {
		t.Errorf("%d warm-ups, %d where none are to be made", warm.WarmUps, plain.WarmUps)
	}
	if warm.Requests != plain.Requests || warm.Errors != 0 {
		t.Errorf("%d requests, %d errors; without warm-ups %d requests", warm.Requests, warm.Errors, plain.Requests)
	}
}
