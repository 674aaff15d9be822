package replay

import (
	"testing"
	"time"
)

// TestWarmUps holds that copies which nobody waits for have large fleets with empty caches
// answer sooner, and that they are no requests of users.
func TestWarmUps(t *testing.T) {
	for _, c := range []struct {
		engines, texts   int
		mean, p90, token float64 // most times those without
	}{{32, 1, .95, 1, 1}, {32, 8, .98, 1, 1}, {200, 1, .95, .9, .99}, {200, 8, .95, .9, .99}} {
		phases := []phase{{c.engines, 16 * time.Second}}
		plain, warm := playPhases(t, Default, c.texts, phases), playPhases(t, Warming, c.texts, phases)
		t.Logf("%d engines, %d texts: mean %.3f → %.3f s, p90 %.3f → %.3f s, p99 %.2f → %.2f s, %.1f → %.1f ms per token; %d warm-ups, %.3f of the prompts' tokens", c.engines, c.texts,
			plain.TTFT.Mean, warm.TTFT.Mean, plain.TTFT.P90, warm.TTFT.P90, plain.TTFT.P99, warm.TTFT.P99, 1e3*plain.TPOT.Mean, 1e3*warm.TPOT.Mean, warm.WarmUps, warm.Warmed)
		if warm.TTFT.Mean > c.mean*plain.TTFT.Mean || warm.TTFT.P90 > c.p90*plain.TTFT.P90 || warm.TPOT.Mean > c.token*plain.TPOT.Mean {
			t.Errorf("%d engines, %d texts: less is gained than it should be", c.engines, c.texts)
		}
		if plain.WarmUps != 0 || warm.WarmUps == 0 || warm.WarmUps > c.engines {
			t.Errorf("%d warm-ups, %d where none are to be made", warm.WarmUps, plain.WarmUps)
		}
		if warm.Requests != plain.Requests || warm.Errors != 0 {
			t.Errorf("%d requests, %d errors; without warm-ups %d requests", warm.Requests, warm.Errors, plain.Requests)
		}
	}
}
