package flow

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

var burstSeeds = flag.Int("flow.bursts", 20, "seeds of TestFleetBursts")

// TestFleetBursts sends a burst of requests to an idle pool, at all replicas or some, before the
// replicas have exchanged gauges. The result must not depend on the known mean service time: none,
// the true one, or a tenth of the true one.
func TestFleetBursts(t *testing.T) {
	worst := map[string]float64{}
	for seed := range uint64(*burstSeeds) {
		for what, known := range map[string]float64{"nothing": 0, "the mean": 1, "a tenth of it": .1} {
			w := burst(seed, known)
			limit := max(int64(math.Ceil(1.1*float64(w.capacity))), w.capacity+int64(len(w.replicas)))
			worst[what] = max(worst[what], float64(w.most)/float64(w.capacity))
			if w.most > limit {
				t.Errorf("seed %d, known mean %s: %d replicas, requests of %.2f s (sigma %.2g), delay %v: %d permits in flight of %d",
					seed, what, len(w.replicas), w.mean, w.sigma, time.Duration(w.delay), w.most, w.capacity)
			}
			w.check(t)
		}
	}
	t.Log("most places in flight, by what is known of the time that requests take:", worst)
}

// burst simulates a burst on an idle pool. known is the mean time of earlier requests, relative to
// the mean time in the burst. Gauges are delayed by at most a twentieth of this mean time.
func burst(seed uint64, known float64) *world {
	const s = int64(time.Second)
	rng := rand.New(rand.NewPCG(seed, 11))
	replicas, mean, capacity := 2+rng.IntN(3), .5*math.Exp(rng.Float64()*2.7), int64(16+rng.IntN(200))
	o := tenants
	o.Default.Fairness = []rules.Fairness{rules.Strict, rules.Places}[rng.IntN(2)]
	w := newWorld(seed, replicas, capacity, mean, o)
	w.sigma = []float64{.02, .3, .8}[rng.IntN(3)]
	w.delay = (int64(.05*mean*1e9) - 20*ms) * 2 / 3
	w.until(3 * s)
	if known > 0 {
		w.mean = known * mean
		for range 5 * replicas {
			w.offer(w.replicas[rng.IntN(replicas)], rules.Request{Flow: "a"})
			w.until(w.now + s/10)
		}
		w.until(w.now + 12*int64(mean*1e9))
		w.mean = mean
	}
	w.most = w.running
	for i, r := range w.replicas {
		if i > 0 && rng.IntN(4) == 0 {
			continue
		}
		for range 2 * capacity {
			w.after(rng.Int64N(20*ms), func() { w.offer(r, rules.Request{Flow: "a"}) })
		}
	}
	w.until(w.now + int64(2*mean*1e9))
	return w
}

// TestBurstAtOneTakesAll: if only one replica gets requests, it holds almost all permits as soon as
// its peers have acknowledged, however long requests take.
func TestBurstAtOneTakesAll(t *testing.T) {
	for _, mean := range []float64{.5, 2, 10} {
		w := newWorld(1, 3, 96, mean, tenants)
		w.until(3 * int64(time.Second))
		for range 400 {
			w.offer(w.replicas[0], rules.Request{Flow: "a"})
		}
		if w.until(w.now + 250*ms); w.running < 90 {
			t.Errorf("requests of %g s: %d of 96 permits are held a quarter second after 400 requests arrived", mean, w.running)
		}
		w.check(t)
	}
}
