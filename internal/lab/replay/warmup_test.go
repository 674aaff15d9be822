package replay

import (
	"flag"
	"math"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

var warmSeeds = flag.Int("warm-seeds", 1, "seeds of each structure in TestWarmUpStructures")

// TestWarmUps: warm-ups make copies in advance, so that large fleets with empty caches answer
// sooner. They do not count as user requests.
func TestWarmUps(t *testing.T) {
	for _, c := range []struct {
		engines, texts   int
		mean, p90, token float64 // most times those without
	}{{32, 1, .95, 1, 1}, {32, 8, .98, 1, 1}, {200, 1, .97, 1, 1}, {200, 8, .97, .9, 1}} {
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

// TestWarmUpStructures: over the 200 structures, each with its own seed, warm-ups cost users
// nothing on average. As many runs get much better as get much worse.
func TestWarmUpStructures(t *testing.T) {
	parts.Full(t)
	seeds := *warmSeeds
	var p90, p99, token float64
	list := readStructures(t, "structures.jsonl")
	warmUps, better, worse, runs := 0, 0, 0, float64(seeds*len(list))
	for i := range list {
		for seed := range uint64(seeds) {
			f, seed := &list[i], list[i].Seed+(seed+10)<<32
			plain, warm := f.play(t, Default, f.Rate, seed), f.play(t, Warming, f.Rate, seed)
			r := warm.TTFT.P99 / plain.TTFT.P99
			p90, p99, token = p90+math.Log(warm.TTFT.P90/plain.TTFT.P90)/runs, p99+math.Log(r)/runs, token+math.Log(warm.TPOT.Mean/plain.TPOT.Mean)/runs
			warmUps, better, worse = warmUps+warm.WarmUps, better+int(b2i(r < 1/1.5)), worse+int(b2i(r > 1.5))
		}
	}
	p90, p99, token = math.Exp(p90), math.Exp(p99), math.Exp(token)
	t.Logf("%.0f runs, %d warm-ups: p90 %.3f, p99 %.3f, time per token %.3f times; p99 better by half in %d, worse by half in %d", runs, warmUps, p90, p99, token, better, worse)
	if p90 > 1.02 || p99 > 1.02 || token > 1.01 || worse > better {
		t.Error("warm-ups cost users something")
	}
}
