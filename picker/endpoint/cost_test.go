package endpoint

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint/fit"
)

// trueCost is the true cost that the learner has to find.
type trueCost struct{ base, token, pair, noise float64 }

func (e trueCost) ttft(rng *rand.Rand, w Work) time.Duration {
	s := e.base + e.token*float64(w.New) + e.pair*w.Pairs()
	return seconds(s * math.Exp(rng.NormFloat64()*e.noise))
}

// drawWork draws from a chat workload: mostly short suffixes, some long prompts.
func drawWork(rng *rand.Rand) Work {
	in := 500 + int(rng.ExpFloat64()*8000)
	held := 0
	if rng.IntN(3) > 0 {
		held = in * (50 + rng.IntN(45)) / 100
	}
	return Work{Input: in, New: in - held}
}

// worst returns the largest error factor of predictions of typical requests.
func worst(c *Cost, e trueCost) float64 {
	off := 1.0
	for _, w := range []Work{{1000, 1000}, {8000, 8000}, {8000, 800}, {30000, 3000}, {30000, 30000}} {
		want := e.base + e.token*float64(w.New) + e.pair*w.Pairs()
		got := c.Base + c.Prefill(w)
		off = max(off, got/want, want/got)
	}
	return off
}

func TestCostLearned(t *testing.T) {
	f := func(name string, e trueCost, prior Cost, limit float64) {
		t.Helper()
		rng := rand.New(rand.NewPCG(7, 7))
		c := new(counters)
		c.SetPriorCost(prior)
		for range 100 {
			w := drawWork(rng)
			c.ObservePrefill(&Queued{Own: w, At: t0}, e.ttft(rng, w))
		}
		if off := worst(c.Cost(), e); off > limit {
			t.Errorf("%s: predictions off by a factor of %.2f: %+v", name, off, *c.Cost())
		}
	}
	big := trueCost{0.018, 71e-6, 1.66e-9, 0.1}
	small := trueCost{0.009, 32e-6, 0.1e-9, 0.1}
	f("70B from the prior", big, PriorCost, 1.25)
	f("8B from the prior", small, PriorCost, 1.25)
	scaled := func(x float64) Cost {
		return Cost{Base: big.base * x, PerToken: big.token * x, PerPair: big.pair * x, Step: 1, PerSeq: 1, PerContext: 1}
	}
	f("three times too high", big, scaled(3), 1.25)
	f("three times too low", big, scaled(1./3), 1.25)
	f("noisy", trueCost{0.018, 71e-6, 1.66e-9, 0.5}, PriorCost, 1.5)
	f("twelve times off", big, scaled(12), 1.4)
}

// TestCostFollows checks that halved speed is learned within 100 requests.
func TestCostFollows(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	c := new(counters)
	e := trueCost{0.018, 71e-6, 1.66e-9, 0.1}
	for i := range 400 {
		if i == 300 {
			e.base, e.token, e.pair = e.base*2, e.token*2, e.pair*2
		}
		w := drawWork(rng)
		c.ObservePrefill(&Queued{Own: w, At: t0}, e.ttft(rng, w))
	}
	if off := worst(c.Cost(), e); off > 1.25 {
		t.Errorf("off by a factor of %.2f: %+v", off, *c.Cost())
	}
}

// TestCostOutliers checks that a few extreme samples change little.
func TestCostOutliers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	c := new(counters)
	e := trueCost{0.018, 71e-6, 1.66e-9, 0.1}
	for i := range 200 {
		w := drawWork(rng)
		d := e.ttft(rng, w)
		if i%50 == 49 {
			d = time.Hour
		}
		c.ObservePrefill(&Queued{Own: w, At: t0}, d)
	}
	for _, bad := range []time.Duration{-time.Hour, math.MaxInt64} {
		c.ObservePrefill(&Queued{Own: Work{math.MaxInt32, math.MaxInt32}, At: t0}, bad)
	}
	if off := worst(c.Cost(), e); off > 1.7 {
		t.Errorf("off by a factor of %.2f: %+v", off, *c.Cost())
	}
}

// TestFleetCost checks that a pool is learned as fast as one endpoint, and that an endpoint that
// differs from the others is recognized.
func TestFleetCost(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	p := newPool(16)
	eps := p.Snapshot().Endpoints
	eps[3].SetPriorCost(Cost{Base: 1, PerToken: 1e-3, PerPair: 1e-8, Step: 1, PerSeq: 1, PerContext: 1})
	usual, slow := trueCost{0.018, 71e-6, 1.66e-9, 0.1}, trueCost{0.036, 142e-6, 3.32e-9, 0.1}
	teach := func(ep *Endpoint, e trueCost, n int) {
		for range n {
			w := drawWork(rng)
			p.LearnPrefill(ep, &Queued{Own: w, At: t0}, e.ttft(rng, w))
		}
	}
	for _, ep := range eps[:2] {
		teach(ep, usual, 20)
	}
	for _, ep := range []*Endpoint{eps[3], eps[15]} {
		if off := worst(ep.Cost(), usual); off > 1.35 {
			t.Errorf("%s, never seen: off by a factor of %.2f: %+v", ep.Address, off, *ep.Cost())
		}
	}
	teach(eps[5], slow, 60)
	teach(eps[0], usual, 20)
	if off := worst(eps[5].Cost(), slow); off > 1.35 {
		t.Errorf("the slow one: off by a factor of %.2f: %+v", off, *eps[5].Cost())
	}
	if off := worst(eps[1].Cost(), usual); off > 1.5 {
		t.Errorf("the usual one: off by a factor of %.2f: %+v", off, *eps[1].Cost())
	}
	p.LearnStep(eps[0], 10, 10_000, 0.1, t0)
	if c := eps[7].Cost(); c.Step <= PriorCost.Step {
		t.Errorf("steps are not learned by the pool: %+v", c)
	}
}

func TestCostShared(t *testing.T) {
	c := new(counters)
	remote := Cost{Base: 1, PerToken: 2, PerPair: 3, Step: 4, PerSeq: 5, PerContext: 6, Idle: 1, Noise: PriorCost.Noise, PrefillSeen: 10, DecodeSeen: 10}
	c.SetRemoteCost(remote)
	if got := *c.Cost(); got != remote {
		t.Errorf("nothing learned here: %+v", got)
	}
	c.SetRemoteCost(Cost{Base: math.NaN(), PerToken: -1, PerPair: math.Inf(1), PrefillSeen: 10})
	if got := *c.Cost(); got.Base != PriorCost.Base || got.PerToken != PriorCost.PerToken || got.PerPair != PriorCost.PerPair {
		t.Errorf("nonsense was believed: %+v", got)
	}
}

func TestStepLearned(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	c := new(counters)
	for range 300 {
		n := 1 + rng.Float64()*100
		ctx := n * (500 + rng.Float64()*8000)
		c.ObserveStep(n, ctx, 0.018+100e-6*n+20e-9*ctx)
	}
	got := c.Cost()
	for _, x := range [][2]float64{{1, 1000}, {50, 200_000}, {100, 400_000}} {
		want := 0.018 + 100e-6*x[0] + 20e-9*x[1]
		if step := got.Step + got.PerSeq*x[0] + got.PerContext*x[1]; step > want*1.2 || step < want/1.2 {
			t.Errorf("%v: %.4f, want %.4f", x, step, want)
		}
	}
}

func TestWait(t *testing.T) {
	c := &Cost{PerToken: 1e-3, PerPair: 1e-6}
	f := func(l Load, want float64) {
		t.Helper()
		if got := c.Wait(&l, t0); math.Abs(got-want) > 1e-9 {
			t.Errorf("%+v: %v, want %v", l, got, want)
		}
	}
	f(Load{}, 0)
	f(Load{Waiting: 1, Prefill: 1000, Pairs: 500_000}, 1.5)
	// The longest prefill in the queue takes 1.5 s; at most that much may be done.
	f(Load{Waiting: 1, Prefill: 1000, Pairs: 500_000, LastFirst: t0.Add(-400 * time.Millisecond).UnixNano()}, 1.1)
	f(Load{Waiting: 1, Prefill: 1000, Pairs: 500_000, LastFirst: t0.Add(-2 * time.Second).UnixNano()}, 0)
	f(Load{Waiting: 1, Prefill: 1000, Pairs: 500_000, LastFirst: t0.Add(time.Second).UnixNano()}, 1.5)
	// Four prefills of 1.5 s: only one can have been in progress.
	f(Load{Waiting: 4, Prefill: 4000, Pairs: 2_000_000, LastFirst: t0.Add(-2 * time.Second).UnixNano()}, 4.5)
	// No first token for longer than any prefill takes: blocked, and expected to stay so.
	f(Load{Waiting: 4, Prefill: 4000, Pairs: 2_000_000, LastFirst: t0.Add(-10 * time.Second).UnixNano()}, 10)
	f(Load{Waiting: 0, Prefill: 1000}, 0)
}

func FuzzFit(f *testing.F) {
	f.Add(1.0, 2.0, 3.0, 4.0, 0.0)
	f.Add(1e-300, 1e300, 0.0, 1.0, 1e308)
	f.Fuzz(func(t *testing.T, a, b, c, y, z float64) {
		m := fit.New()
		for _, s := range [][4]float64{{a, b, c, y}, {1, 1, 1, 3}, {c, a, b, z}, {1, 0, 0, y}} {
			m.Observe([3]float64{math.Abs(s[0]), math.Abs(s[1]), math.Abs(s[2])}, s[3], 1)
		}
		for _, v := range m.A {
			if !(v > 0) || math.IsInf(v, 0) {
				t.Fatalf("factors %v", m.A)
			}
		}
	})
}
