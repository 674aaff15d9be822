package predicted

import (
	"context"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// randomCycle returns a decision among a random fleet.
func randomCycle(rng *rand.Rand) *cycle.Cycle {
	now := time.Unix(1_700_000_000, 0)
	pool := endpoint.NewPool(endpoint.PoolOptions{Now: func() time.Time { return now }})
	specs := make([]endpoint.Spec, 2+rng.IntN(30))
	for i := range specs {
		specs[i] = endpoint.Spec{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8000)}
	}
	pool.Set(specs)
	held := make([]int32, len(specs))
	for i, ep := range pool.Snapshot().Endpoints {
		held[i] = int32(rng.IntN(4) * rng.IntN(300) * 16)
		l := endpoint.Load{Requests: rng.Int64N(40), Rate: 3 * rng.Float64(), Busy: rng.Float64(), LastFirst: now.UnixNano() - rng.Int64N(3e9), Context: rng.Int64N(200_000)}
		l.Waiting = rng.Int64N(l.Requests + 1)
		l.Prefill = l.Waiting * rng.Int64N(9000)
		l.Pairs, l.Tokens = float64(l.Prefill)*2000, l.Context+l.Prefill
		pool.LoadTracker().SetRemote(ep, l)
		ep.SetGauges(endpoint.Gauges{At: now, Values: gauge.Values{Waiting: rng.IntN(5), Running: rng.IntN(60), KVUse: rng.Float64()}, BlockSize: 16, Blocks: 2000 + rng.IntN(20_000)})
		if rng.IntN(2) == 0 {
			c := endpoint.PriorCost
			c.PerToken *= .5 + rng.Float64()
			c.PrefillSeen = 50
			ep.SetRemoteCost(c)
		}
	}
	match := func(_ context.Context, _ *request.Request, eps []*endpoint.Endpoint, out []cycle.PrefixMatch) {
		for k, ep := range eps {
			out[k].Run.Tokens[block.TierGPU] = held[ep.ID]
		}
	}
	r := &request.Request{Kind: request.KindChat, Model: "m", Target: "m", InputTokens: 5000}
	return cycle.New(cycle.Options{Pool: pool, Match: match, Sessions: sessions.New(0), Now: now, Seed: rng.Uint64()}, r)
}

// TestPricesEqualTheRule checks that prices computed from kept terms equal the prices by the
// complete rule.
func TestPricesEqualTheRule(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	s := New(Defaults, nil).(scorer)
	for range 300 {
		c := randomCycle(rng)
		scores := make([]float64, c.Len())
		d := s.price(c, scores)
		for k := range scores {
			v, w := c.At(k).Rank(), c.Work(k)
			wait := v.Wait(c.Now, float64(w.New), d.answer)
			p := s.Predict(v.Cost, &v.Load, w, wait, d.answer)
			memory := 0.0
			if use := min(v.KVUse+float64(w.New)/v.Capacity, 1); use >= littleUsed {
				hold := d.hold(v, w)
				memory = math.Pow(use, float64(max(v.Running, 1))) * hold * v.Load.Rate * (max(v.WaitOfMemory(float64(w.New), d.answer)-d.least, 0) + hold/2)
			}
			want := p.TTFT() + p.Others + s.BusyWeight*d.tracked*d.tracked*s.busy(v) + s.MemoryWeight*memory
			if got := -scores[k]; math.Abs(got-want) > 1e-12*want {
				t.Fatalf("candidate %d costs %v, want %v", k, got, want)
			}
		}
		c.Free()
	}
}

// TestPruningKeepsTheChoice checks that the candidate for a copy is the one that pricing every
// candidate gives.
func TestPruningKeepsTheChoice(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	s := New(Defaults, nil).(scorer)
	found, pruned, all := 0, 0, 0
	for range 2000 {
		c := randomCycle(rng)
		scores := make([]float64, c.Len())
		d := s.price(c, scores)
		s.demote(d)
		s.even(d)
		h := greatest(scores)
		held := d.Work(h)
		want, least := h, -scores[h]
		for k := range scores {
			if d.Work(k).New <= held.New || s.beyond(d, k) > 0 {
				continue
			}
			all++
			v := d.At(k)
			if s.cost(d, s.Predict(v.Cost, &v.Load, held, d.waits[k], d.answer)) >= -scores[h] {
				pruned++
			}
			if cost := s.cost(d, s.predict(d, k, held)); cost < least {
				want, least = k, cost
			}
		}
		if got, there := s.cheapestCopy(d, h, held); got != want || there != least {
			t.Fatalf("candidate %d at %v, want %d at %v", got, there, want, least)
		}
		if want != h {
			found++
		}
		c.Free()
	}
	if found < 50 || pruned < all/10 {
		t.Errorf("%d copies of 2,000 decisions, %d of %d candidates pruned: the fleets test nothing", found, pruned, all)
	}
}

// TestNoWeightLoosensTheBound checks that the chosen candidate's first token is at most mostLate
// times the minimum wait + whole prompt, plus one step, for any weights. In the fleet without caches
// the first request waits for memory alone.
func TestNoWeightLoosensTheBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	tight := 0
	for i := range 2000 {
		p := Defaults
		p.StallWeight, p.QueueWeight = []float64{0, .1, 1, 100}[i%4], []float64{0, 1, 100}[i%3]
		p.OwnWeight, p.CopyThreshold = 10*rng.Float64(), 3*rng.Float64()
		s, c := New(p, nil).(scorer), randomCycle(rng)
		scores := make([]float64, c.Len())
		s.Score(c, scores)
		whole, chosen := endpoint.Work{Input: c.Request.InputTokens, New: c.Request.InputTokens}, greatest(scores)
		least, quickest, memory := far, far, far
		for k := range scores {
			v := c.At(k).Rank()
			wait, room := v.Waits(c.Now, float64(c.Work(k).New), c.Answer())
			least, quickest, memory = min(least, wait+v.Cost.Prefill(whole)), min(quickest, v.Cost.Prefill(whole)), min(memory, room)
		}
		v := c.At(chosen).Rank()
		first := v.Wait(c.Now, float64(c.Work(chosen).New), c.Answer()) + v.Cost.Prefill(c.Work(chosen))
		if most := mostLate*max(least, memory+quickest) + v.Cost.Step; first > most*(1+1e-9) {
			t.Fatalf("stall weight %v: first token after %.3f s, want at most %.3f s", p.StallWeight, first, most)
		} else if first > least+v.Cost.Step {
			tight++
		}
		c.Free()
	}
	if tight < 50 {
		t.Errorf("%d of 2,000 choices are later than the minimum: the fleets test nothing", tight)
	}
}

func TestPower(t *testing.T) {
	for _, base := range []float64{0, .5, .9, .999, 1} {
		for _, n := range []int{1, 2, 3, 17, 256, 1024} {
			if got, want := power(base, n), math.Pow(base, float64(n)); math.Abs(got-want) > 1e-12*want {
				t.Errorf("power(%v, %d) = %v, want %v", base, n, got, want)
			}
		}
	}
}
