package replay

import (
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

// zoned returns six equal engines in two zones, with a replica in each. use is the load relative to a full fleet.
func zoned(t *testing.T, name, pol string, use float64, demand [2]float64, seed uint64) Case {
	t.Helper()
	w, err := trace.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	m, _ := engine.MachineByName("70b")
	return Case{
		Trace:  w.Generate(trace.GenerateOptions{Rate: rates[name] * 6 * use, Length: 12 * time.Minute, Seed: seed}),
		Policy: policy(t, pol), Endpoints: 6, Engine: engine.Config{Model: m.Model, Noise: engine.Noise{Sigma: .1}},
		Zones: []string{"a", "a", "a", "b", "b", "b"}, Replicas: 2, Share: 2 * time.Millisecond,
		Homes: []Home{{"a", demand[0]}, {"b", demand[1]}}, Warmup: 3 * time.Minute, Seed: seed,
	}
}

// engineTimes returns the mean time per token of each engine's answers.
func (s *simulation) engineTimes() []float64 {
	out := make([]float64, 6)
	var seconds, tokens [6]float64
	for i, o := range s.outcomes {
		if q := s.Trace.Requests[i]; q.At > s.Warmup && q.Output > 1 {
			seconds[o.Endpoint] += (o.End - o.First).Seconds()
			tokens[o.Endpoint] += float64(q.Output - 1)
		}
	}
	for e := range out {
		out[e] = seconds[e] / tokens[e]
	}
	return out
}

// Six equal engines in two zones with equal demand: fewer than 5% of the requests leave their zone, also
// close to saturation, and first tokens are about as early as without zones. Without a margin for
// the uncertainty of predictions, 44% leave it.
func TestRequestsStayInTheirZone(t *testing.T) {
	const seeds = 3
	for _, use := range []float64{.25, .5, .8} {
		var crossed, p90, e2e, p90Without, e2eWithout float64
		for seed := range uint64(seeds) {
			with := run(t, zoned(t, "chat", Default, use, [2]float64{1, 1}, seed+1))
			without := run(t, zoned(t, "chat", "default:zoneCost=0", use, [2]float64{1, 1}, seed+1))
			crossed += with.Crossed / seeds
			p90, e2e = p90+with.TTFT.P90/seeds, e2e+with.E2E.Mean/seeds
			p90Without, e2eWithout = p90Without+without.TTFT.P90/seeds, e2eWithout+without.E2E.Mean/seeds
		}
		t.Logf("%.0f%% used: %.1f%% leave the zone; p90 of first tokens %.3f s, without zones %.3f s; mean answers %.2f s and %.2f s", 100*use, 100*crossed, p90, p90Without, e2e, e2eWithout)
		if crossed >= .05 {
			t.Errorf("%.0f%% used: %.1f%% of the requests leave the zone, want less than 5%%", 100*use, 100*crossed)
		}
		if p90 > 1.12*p90Without || e2e > 1.08*e2eWithout {
			t.Errorf("%.0f%% used: p90 of first tokens %.3f s, mean of answers %.2f s, without zones %.3f s and %.2f s", 100*use, p90, e2e, p90Without, e2eWithout)
		}
	}
}

// All requests arrive in one zone, and are 150% of its capacity. Enough leave it: the slowest engine
// is not much slower than without zones, and first tokens are not later.
func TestZoneOverload(t *testing.T) {
	for seed := range uint64(3) {
		all := [2]float64{1, 0}
		with, without := played(t, zoned(t, "chat", Default, .75, all, seed+1)), played(t, zoned(t, "chat", "default:zoneCost=0", .75, all, seed+1))
		r, o := with.result(), without.result()
		t.Logf("seed %d: %.0f%% leave the zone; p90 of first tokens %.3f s, without zones %.3f s; ms per token by engine %.4f, without zones %.4f", seed+1, 100*r.Crossed, r.TTFT.P90, o.TTFT.P90, with.engineTimes(), without.engineTimes())
		if r.Crossed < .2 || r.TTFT.P90 > 1.25*o.TTFT.P90 || r.Errors > 0 {
			t.Errorf("seed %d: %.0f%% leave the zone, p90 of first tokens %.3f s, want at least 20%% and at most 1.25 times %.3f s", seed+1, 100*r.Crossed, r.TTFT.P90, o.TTFT.P90)
		}
		slowest, slowestWithout := 1e3*slices.Max(with.engineTimes()), 1e3*slices.Max(without.engineTimes())
		if slowest > 1.35*slowestWithout {
			t.Errorf("seed %d: the slowest engine takes %.1f ms per token, want at most 1.35 times %.1f ms", seed+1, slowest, slowestWithout)
		}
	}
}
