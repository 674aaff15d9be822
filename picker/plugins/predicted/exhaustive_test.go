package predicted

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/plugins/policies"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// everyTotal hides from a profile that its picker needs few totals, so that all candidates are
// priced.
type everyTotal struct{ cycle.Picker }

// largePool is a random pool and the requests to it.
type largePool struct {
	*rand.Rand
	now  time.Time
	pool *endpoint.Pool
	held [][block.NumTiers]int32
	what string
	lora bool
}

var zoneNames = []string{"a", "b", "c", ""}

// newLargePool returns a pool with random properties: each is absent in some pools.
func newLargePool(seed uint64) *largePool {
	g := &largePool{Rand: rand.New(rand.NewPCG(seed, 9)), now: time.Unix(1_700_000_000, 0)}
	n := 2 + g.IntN(400)
	if g.IntN(4) == 0 {
		n = 2 + g.IntN(2999)
	}
	yes := func() bool { return g.IntN(2) == 0 }
	zones, roles, unequal, loaded, memory, slots, ranks, sick, learned := yes(), g.IntN(4) == 0, yes(), yes(), yes(), g.IntN(4) == 0, g.IntN(4) == 0, g.IntN(3) == 0, yes()
	g.lora = g.IntN(4) == 0
	g.what = fmt.Sprintf("seed %d: %d endpoints, zones %v, roles %v, unequal %v, loaded %v, memory %v, slots %v, ranks %v, sick %v, adapters %v",
		seed, n, zones, roles, unequal, loaded, memory, slots, ranks, sick, g.lora)
	o := endpoint.PoolOptions{Now: func() time.Time { return g.now }}
	if zones {
		o.Zone = "a"
	}
	g.pool = endpoint.NewPool(o)
	specs := make([]endpoint.Spec, n)
	for i := range specs {
		labels := map[string]string{endpoint.Levels[endpoint.LevelZone].Label: zoneNames[g.IntN(len(zoneNames))]}
		if roles {
			labels[endpoint.LabelRole] = []string{"prefill", "decode", "both"}[g.IntN(3)]
		}
		specs[i] = endpoint.Spec{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000), Labels: labels}
	}
	g.pool.Set(specs)
	g.held = make([][block.NumTiers]int32, n)
	holders := []int{0, 1, 1, 20, n}[g.IntN(5)]
	for range holders {
		g.held[g.IntN(n)][g.IntN(2)] = int32(g.IntN(300) * 16)
	}
	base := endpoint.PriorCost
	for _, ep := range g.pool.Snapshot().Endpoints {
		if unequal {
			base = endpoint.PriorCost
			base.PerToken *= .5 + g.Float64()
			base.Step *= .5 + g.Float64()
		}
		if learned {
			base.PrefillSeen, base.DecodeSeen = 50, 50
			ep.SetRemoteCost(base)
		}
		var l endpoint.Load
		if loaded || g.IntN(9) == 0 {
			l = endpoint.Load{Requests: g.Int64N(40), Rate: 3 * g.Float64(), Busy: g.Float64(), LastFirst: g.now.UnixNano() - g.Int64N(3e9), Context: g.Int64N(200_000), RatesAt: g.now.UnixNano() - g.Int64N(1e11)}
			l.Waiting = g.Int64N(l.Requests + 1)
			l.Prefill = l.Waiting * g.Int64N(3000)
			l.Pairs, l.Tokens = float64(l.Prefill)*2000, l.Context+l.Prefill
		}
		g.pool.LoadTracker().SetRemote(ep, l)
		s := endpoint.Gauges{At: g.now.Add(-time.Duration(g.IntN(6000)) * time.Millisecond), Values: gauge.Values{Running: int(l.Requests - l.Waiting), Waiting: int(l.Waiting)}, BlockSize: 16, Blocks: 2000 + g.IntN(20_000)}
		if loaded && yes() {
			s.Waiting, s.Running = g.IntN(5), g.IntN(60)
		}
		if memory {
			s.KVUse = g.Float64()
		}
		if ranks && yes() {
			s.Ranks = 1 + g.IntN(4)
		}
		if g.lora {
			s.LoRA = &endpoint.LoRA{Max: 2, Running: []string{fmt.Sprint("l", g.IntN(9))}}
		}
		if g.IntN(20) > 0 {
			ep.SetGauges(s)
		}
		if slots && yes() {
			ep.SetSlots(1+g.Int64N(40), g.now)
		}
		if sick && g.IntN(9) == 0 {
			ep.SetDown(true)
		}
		if sick && g.IntN(9) == 0 {
			ep.SetPermits(20)
		}
	}
	for range g.IntN(2) * 200 { // engines with samples have an uncertainty
		eps := g.pool.Snapshot().Endpoints
		q := endpoint.Queued{Own: endpoint.Work{Input: 4000, New: 4000}, At: g.now}
		g.pool.LearnPrefill(eps[g.IntN(len(eps))], &q, time.Duration(100+g.IntN(400))*time.Millisecond)
	}
	for range 5 {
		g.pool.NeedTimes().Observe(endpoint.Needs(0).With(endpoint.NeedAdapter), .4)
	}
	return g
}

func (g *largePool) request() *request.Request {
	r := &request.Request{Kind: request.KindChat, Model: "m", Target: "m", InputTokens: 16 * (1 + g.IntN(300))}
	if g.lora {
		r.Adapter = fmt.Sprint("l", g.IntN(12))
	}
	if g.IntN(3) == 0 {
		r.SLOTTFT = time.Duration(g.IntN(2000)) * time.Millisecond
	}
	for i := range 1 + r.InputTokens/64 {
		r.ChunkKeys = append(r.ChunkKeys, block.Key(1+i))
	}
	return r
}

func (g *largePool) match(_ context.Context, r *request.Request, eps []*endpoint.Endpoint, out []cycle.PrefixMatch) {
	for k, ep := range eps {
		out[k].Run.Tokens = g.held[ep.ID]
		for t := range out[k].Run.Tokens {
			out[k].Run.Tokens[t] = min(out[k].Run.Tokens[t], int32(r.InputTokens/2))
		}
	}
}

// rule is a default policy with its own state.
type rule struct {
	scorer  scorer
	profile *cycle.Profile
}

func newRule(p Params, picker cycle.Picker) rule {
	s := New(p, nil)
	return rule{s.(scorer), &cycle.Profile{Name: "p", Picker: picker, Scorers: []cycle.ProfileScorer{{Name: "s", Weight: 1, Scorer: s}}}}
}

// TestPruningEqualsPricingAll checks that pruning changes neither choices nor explanations, in random
// pools. It plays several requests, since earlier ones determine when prefixes are copied.
func TestPruningEqualsPricingAll(t *testing.T) {
	pruned, priced, copies, demoted := 0, 0, 0, 0
	for seed := range uint64(300) {
		g := newLargePool(seed)
		p := Defaults
		if g.IntN(3) == 0 {
			p.MaxShare = .02
		}
		if g.IntN(2) == 0 {
			p.Alike = 0
		}
		p.WarmUp = g.IntN(4) == 0
		top := policies.FirstScore(1 + g.IntN(4))
		few, all := newRule(p, top), newRule(p, everyTotal{top})
		for range 4 {
			r, o := g.request(), cycle.Options{Pool: g.pool, Match: g.match, Sessions: sessions.New(0), Now: g.now, Seed: g.Uint64(), WarmUps: true, ByPriority: seed%5 == 0}
			a, b := cycle.New(o, r), cycle.New(o, r)
			runs := []func(*cycle.View) bool{nil}
			if seed%3 == 0 { // two parts of a request, as with prefill and decode endpoints
				runs = []func(*cycle.View) bool{
					func(v *cycle.View) bool { return v.Role&endpoint.RoleDecode != 0 },
					func(v *cycle.View) bool { return v.Role&endpoint.RolePrefill != 0 || v.ID%2 == 0 },
				}
			}
			for _, able := range runs {
				x, y := few.profile.RunAmong(a, able), all.profile.RunAmong(b, able)
				if a.Candidates() == 0 || len(y.Live) == 0 {
					continue
				}
				compareRankings(t, g.what, a, b, x, y)
				d, e := a.State().(*decision), b.State().(*decision)
				if d.pruned {
					pruned++
					for k := range d.scores {
						if a.HasPredicted(d.Index(k)) {
							priced++
						}
						if s := few.scorer; s.beyond(d, k) > 0 {
							demoted++
						}
					}
				}
				if e.pruned {
					t.Fatal("the exhaustive rule prunes")
				}
				if y.Total[all.best(y)] > -all.scorer.cost(e, b.Predicted(y.Best()))+5e-7 {
					copies++
				}
			}
			if a.Plan().WarmUp != b.Plan().WarmUp {
				t.Errorf("%s: warm-up of %d, want %d", g.what, a.Plan().WarmUp, b.Plan().WarmUp)
			}
			a.Free()
			b.Free()
			if t.Failed() {
				return
			}
			g.now = g.now.Add(time.Duration(g.IntN(900)) * time.Millisecond)
			for _, ep := range g.pool.Snapshot().Endpoints {
				if g.IntN(50) == 0 {
					g.pool.LoadTracker().SetRemote(ep, endpoint.Load{Requests: g.Int64N(9), Rate: g.Float64(), Busy: g.Float64() / 3})
				}
			}
		}
	}
	t.Logf("%d decisions pruned, %d candidates priced, %d beyond a limit, %d copies", pruned, priced, demoted, copies)
	if pruned < 500 || demoted < 1000 || copies < 10 {
		t.Errorf("%d decisions pruned, %d candidates beyond a limit, %d copies: the pools test nothing", pruned, demoted, copies)
	}
}

// TestEqualCandidates checks that even considers every candidate that may equal the best one.
func TestEqualCandidates(t *testing.T) {
	p, changed := Defaults, 0
	p.Alike = 0
	s := New(p, nil).(scorer)
	for seed := range uint64(60) {
		g := newLargePool(seed)
		c := cycle.New(cycle.Options{Pool: g.pool, Match: g.match, Sessions: sessions.New(0), Now: g.now, Seed: seed}, g.request())
		if c.Len() == 0 {
			continue
		}
		scores := make([]float64, c.Len())
		d := s.price(c, scores)
		s.demote(d)
		want := slices.Clone(scores)
		best := greatest(want)
		top := want[best]
		for k, x := range want {
			slack := max(-top*max(c.At(best).Cost.Uncertainty, c.At(k).Cost.Uncertainty), d.steps[best])
			if x > top-slack && d.news[k] == d.news[best] && d.loads[k] == d.loads[best] {
				if want[k] = top - evenRequest*float64(c.At(k).Rank().Load.Requests); c.At(k).InRemoteZone {
					want[k] -= evenZone
				}
				changed++
			}
		}
		s.even(d)
		if !slices.Equal(scores, want) {
			t.Fatalf("%s: scores differ from the rule's", g.what)
		}
		c.Free()
	}
	if changed < 200 {
		t.Errorf("%d candidates equal the best one: the pools test nothing", changed)
	}
}

// best returns the position of the first choice in a ranking.
func (r rule) best(y *cycle.Ranking) int {
	for k, i := range y.Live {
		if i == y.Best() {
			return k
		}
	}
	return -1
}

// compareRankings checks the ranking x of a decision that prunes against y, of one that does not.
func compareRankings(t *testing.T, what string, a, b *cycle.Cycle, x, y *cycle.Ranking) {
	t.Helper()
	if fmt.Sprint(x.Order) != fmt.Sprint(y.Order) {
		t.Errorf("%s: order %v, want %v", what, x.Order, y.Order)
	}
	s, e := scorer{}, b.State().(*decision)
	picked := map[int32]bool{}
	for _, i := range y.Order {
		picked[i] = true
	}
	worst := far
	for k, i := range y.Live {
		if picked[i] {
			worst = min(worst, y.Total[k])
		}
	}
	for k, i := range y.Live {
		if i >= cycle.Listed && !picked[i] {
			if x.Total[k] > worst {
				t.Errorf("%s: candidate %d has %v, more than the last one picked, %v", what, i, x.Total[k], worst)
			}
			continue
		}
		if got, want := a.Predicted(i), b.Predicted(i); got != want {
			t.Errorf("%s: candidate %d has %+v, want %+v", what, i, got, want)
		}
		if s.beyond(e, k) > 0 && !picked[i] && len(y.Live) > cycle.Listed {
			if x.Total[k] > worst {
				t.Errorf("%s: candidate %d exceeds a limit and has %v, more than one picked, %v", what, i, x.Total[k], worst)
			}
		} else if x.Total[k] != y.Total[k] {
			t.Errorf("%s: candidate %d has %v, want %v", what, i, x.Total[k], y.Total[k])
		}
	}
}
