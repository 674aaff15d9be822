package endpoint

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestHelpersLearned checks that prefill-only endpoints learn from each other but not from serving
// endpoints, nor the other way round.
func TestHelpersLearned(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	list := specs(8)
	for i := range 4 {
		list[i].Labels = map[string]string{LabelRole: "prefill"}
	}
	p := NewPool(PoolOptions{})
	eps := p.Set(list).Snapshot.Endpoints
	usual, moved := trueCost{0.018, 71e-6, 1.66e-9, 0.1}, trueCost{0.072, 284e-6, 6.64e-9, 0.1}
	for range 60 {
		w := drawWork(rng)
		p.LearnPrefill(eps[1], &Queued{Own: w, At: t0}, moved.ttft(rng, w))
		p.LearnPrefill(eps[2], &Queued{Own: w, At: t0}, moved.ttft(rng, w))
		p.LearnPrefill(eps[5], &Queued{Own: w, At: t0}, usual.ttft(rng, w))
	}
	for i, ep := range eps {
		want := usual
		if ep.Role&RoleDecode == 0 {
			want = moved
		}
		if off := worst(ep.Cost(), want); off > 1.35 {
			t.Errorf("endpoint %d: off by a factor of %.2f: %+v", i, off, *ep.Cost())
		}
	}
}

// TestIdleLearned checks that the unobstructed prefill time is learned despite untracked requests,
// and follows a change of engines.
func TestIdleLearned(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	p := newPool(4)
	eps := p.Snapshot().Endpoints
	f := func(speed float64) {
		t.Helper()
		e := trueCost{PriorCost.Base * speed, PriorCost.PerToken * speed, PriorCost.PerPair * speed, 0.1}
		for i := range 600 {
			w := drawWork(rng)
			ttft := e.ttft(rng, w)
			if i%3 > 0 { // behind other clients' requests
				ttft *= time.Duration(2 + rng.IntN(8))
			}
			p.LearnPrefill(eps[i%len(eps)], &Queued{Own: w, At: t0}, ttft)
		}
		if got := eps[0].Cost().Idle; got < speed/1.3 || got > speed*1.3 {
			t.Errorf("idle engines take %.2f of the prior, want %.2f", got, speed)
		}
		if got := eps[0].Cost().PerToken / PriorCost.PerToken; got < 2*speed {
			t.Errorf("the test slows nothing: %.2f", got)
		}
	}
	f(1)
	f(3)
	f(.3)
	eps[1].SetPriorCost(*eps[0].Cost())
	if got, want := eps[1].Cost().Idle, eps[0].Cost().Idle; got != want {
		t.Errorf("a restored endpoint has %.2f, want %.2f", got, want)
	}
}

// TestOneSampleEach checks that one sample per endpoint does not count as low noise, and that equal
// endpoints stay equal.
func TestOneSampleEach(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	p := newPool(400)
	e := trueCost{0.018, 71e-6, 1.66e-9, 0.4}
	round := func() {
		for _, ep := range p.Snapshot().Endpoints {
			w := drawWork(rng)
			p.LearnPrefill(ep, &Queued{Own: w, At: t0}, e.ttft(rng, w))
		}
	}
	round()
	if noise := p.fleetOf(p.Snapshot().Endpoints[0].fleet()).noise[0].value(); noise < noisePrior {
		t.Errorf("the variance of a sample is taken to be %.4f, which nothing has shown", noise)
	}
	round()
	round()
	low, high := math.Inf(1), 0.0
	for _, ep := range p.Snapshot().Endpoints {
		low, high = min(low, ep.Cost().PerToken), max(high, ep.Cost().PerToken)
	}
	if high > 1.3*low {
		t.Errorf("equals cost %.3g to %.3g s per token", low, high)
	}
}

// TestManySamplesAreTaughtTogether checks that a busy pool does not publish every endpoint's
// constants for each sample, and that all endpoints have the newest ones soon after.
func TestManySamplesAreTaughtTogether(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	p := newPool(8)
	e := trueCost{0.018, 71e-6, 1.66e-9, 0.05}
	eps := p.Snapshot().Endpoints
	published, last := 0, eps[7].Cost()
	const samples = 4000
	for i := range samples { // 2,000 per second, none of the last endpoint
		w := Work{Input: 1000, New: 1000}
		p.LearnPrefill(eps[i%7], &Queued{Own: w, At: t0.Add(time.Duration(i) * 500 * time.Microsecond)}, e.ttft(rng, w))
		if c := eps[7].Cost(); c != last {
			published, last = published+1, c
		}
	}
	if published > samples/4+teachFirst || published < 100 {
		t.Errorf("%d of %d samples published the constants of another endpoint", published, samples)
	}
	w := Work{Input: 1000, New: 1000}
	if got, want := eps[7].Cost().Prefill(w)+eps[7].Cost().Base, e.base+e.token*1000+e.pair*w.Pairs(); got < .8*want || got > 1.25*want {
		t.Errorf("an endpoint without samples takes %.3g s for 1,000 tokens, want about %.3g", got, want)
	}
}

func BenchmarkLearn(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := newPool(n)
			eps := p.Snapshot().Endpoints
			q := &Queued{Own: Work{1000, 1000}, At: t0}
			b.ReportAllocs()
			for i := range b.N {
				p.LearnPrefill(eps[i%n], q, 60*time.Millisecond)
			}
		})
	}
}

// TestSlowSamplesExpire checks when the samples of a slow endpoint no longer count. One sample expires
// after a minute, several expire later. Each slow retrial extends the time.
func TestSlowSamplesExpire(t *testing.T) {
	now := t0
	p := NewPool(PoolOptions{Now: func() time.Time { return now }})
	eps := p.Set(specs(4)).Snapshot.Endpoints
	w := Work{Input: 1000, New: 1000}
	learn := func(ep *Endpoint, times float64) {
		p.LearnPrefill(ep, &Queued{Own: w, At: now}, seconds(.07*times))
	}
	usual := func(rounds int) {
		for range rounds {
			for _, ep := range eps[1:] {
				learn(ep, 1)
			}
		}
	}
	slow := func() bool {
		p.FadeCosts()
		c := eps[0].LocalCost()
		return c.Prefill(w) > 1.2*eps[1].Cost().Prefill(w)
	}
	// expires checks that the first endpoint counts as slow before a time has passed, and not after it.
	expires := func(what string, after time.Duration) {
		t.Helper()
		start := now
		if now = start.Add(after / 2); !slow() {
			t.Errorf("%s: as fast as the others after %v", what, after/2)
		}
		if now = start.Add(after + fadeEvery); slow() {
			t.Errorf("%s: slower than the others after %v", what, after+fadeEvery)
		}
	}
	usual(20)
	learn(eps[0], 4)
	expires("one sample", onceLife)
	for k, life := range []time.Duration{biasLife, 2 * biasLife, 3 * biasLife, 3 * biasLife} {
		learn(eps[0], 4)
		usual(confirmedTurns)
		expires(fmt.Sprint("slow retrials: ", k+1), life)
	}
	learn(eps[0], 4) // without requests of the pool
	expires("without requests", longestLife)
	learn(eps[0], 1)
	if slow() {
		t.Error("slower than the others after a fast retrial")
	}
	learn(eps[0], 4)
	learn(eps[0], 4)
	learn(eps[0], 4)
	usual(20)
	expires("several samples", biasLife)
}

// TestFadeCostsEnds checks that constants are no longer updated once all samples have expired.
func TestFadeCostsEnds(t *testing.T) {
	now := t0
	p := NewPool(PoolOptions{Now: func() time.Time { return now }})
	ep := p.Set(specs(1)).Snapshot.Endpoints[0]
	p.LearnPrefill(ep, &Queued{Own: Work{Input: 1000, New: 1000}, At: now}, seconds(.07))
	updates := 0
	for range 2 * int(longestLife/time.Second) {
		now = now.Add(time.Second)
		before := ep.cost.local.Load()
		if p.FadeCosts(); ep.cost.local.Load() != before {
			updates++
		}
	}
	if want := int(longestLife / fadeEvery); updates < want-1 || updates > want+1 {
		t.Errorf("%d updates, want about %d", updates, want)
	}
}
