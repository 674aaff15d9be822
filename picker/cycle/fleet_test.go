package cycle

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// fleetRig changes the state of a pool in every way that a decision can observe.
type fleetRig struct {
	*rand.Rand
	pool    *endpoint.Pool
	now     time.Time
	tickets []*endpoint.Ticket
	sizes   int
}

func (g *fleetRig) any() *endpoint.Endpoint {
	eps := g.pool.Snapshot().Endpoints
	return eps[g.IntN(len(eps))]
}

func (g *fleetRig) load() endpoint.Load {
	l := endpoint.Load{Requests: g.Int64N(40), Rate: g.Float64(), Busy: g.Float64(), LastFirst: g.now.UnixNano() - g.Int64N(3e9), Context: g.Int64N(9000), Moving: g.Int64N(9)}
	l.Waiting = g.Int64N(l.Requests + 1)
	l.Prefill, l.Pairs, l.Tokens = 100*l.Waiting, 1e4*float64(l.Waiting), 200*l.Requests
	if g.IntN(3) > 0 {
		l.RatesAt = g.now.Add(-time.Duration(g.Int64N(1e11))).UnixNano()
	}
	return l
}

// changes are all ways to change what a decision reads of an endpoint.
var changes = map[string]func(g *fleetRig){
	"dispatch": func(g *fleetRig) {
		t := &endpoint.Ticket{Helps: g.IntN(5) == 0, RemotePrefill: g.IntN(5) == 0, Sends: g.IntN(2) * 100, OnlySends: g.IntN(9) == 0}
		g.pool.LoadTracker().Open(t, g.any(), endpoint.Work{Input: 900, New: g.IntN(900)}, g.now)
		g.tickets = append(g.tickets, t)
	},
	"progress": func(g *fleetRig) {
		if n := len(g.tickets); n > 0 {
			t := g.tickets[g.IntN(n)]
			t.FirstToken(g.now)
			t.Generated(g.IntN(50))
		}
	},
	"end": func(g *fleetRig) {
		if n := len(g.tickets); n > 0 {
			g.tickets[n-1].Release()
			g.tickets = g.tickets[:n-1]
		}
	},
	"remote load": func(g *fleetRig) { g.pool.LoadTracker().SetRemote(g.any(), g.load()) },
	"gauges": func(g *fleetRig) {
		s := endpoint.Gauges{At: g.now, Ranks: 1 + g.IntN(2)*g.IntN(3), Values: gauge.Values{Waiting: g.IntN(9), Running: g.IntN(50), KVUse: g.Float64()}, BlockSize: 16, Blocks: 1000}
		if g.IntN(4) == 0 {
			s.LoRA = &endpoint.LoRA{Max: 4}
		}
		g.any().SetGauges(s)
	},
	"slots":   func(g *fleetRig) { g.any().SetSlots(g.Int64N(64), g.now) },
	"permits": func(g *fleetRig) { g.any().SetPermits(g.Int64N(20)) },
	"prefill": func(g *fleetRig) {
		q := endpoint.Queued{Own: endpoint.Work{Input: 900, New: 900}, At: g.now}
		g.pool.LearnPrefill(g.any(), &q, time.Second)
	},
	"step": func(g *fleetRig) { g.pool.LearnStep(g.any(), 9, 9000, .03, g.now) },
	"remote cost": func(g *fleetRig) {
		c := endpoint.PriorCost
		c.PrefillSeen, c.PerToken = 9, 1e-4*g.Float64()
		g.any().SetRemoteCost(c)
	},
	"prior":          func(g *fleetRig) { c := endpoint.PriorCost; c.PerToken = 1e-4 * g.Float64(); g.any().SetPriorCost(c) },
	"time":           func(g *fleetRig) { g.now = g.now.Add(time.Duration(g.Int64N(1e9))) },
	"much time":      func(g *fleetRig) { g.now = g.now.Add(time.Duration(g.Int64N(2e12))) },
	"restart":        func(g *fleetRig) { g.pool.Renew(g.any()) },
	"another number": func(g *fleetRig) { g.sizes = 2 + g.IntN(6); g.pool.Set(specs(g.sizes)) },
	"another label": func(g *fleetRig) {
		list := specs(g.sizes)
		list[g.IntN(g.sizes)].Labels = map[string]string{endpoint.LabelRole: "prefill"}
		g.pool.Set(list)
	},
	"models": func(g *fleetRig) {
		g.pool.SetModels(g.any().ID, endpoint.ModelList{Models: []endpoint.Model{{Name: "m"}, {Name: string(rune('a' + g.IntN(3)))}}}, g.now)
	},
}

// TestKeptViews checks that a decision sees the current state of every endpoint after any change,
// although it reads only endpoints that have changed.
func TestKeptViews(t *testing.T) {
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			g := &fleetRig{Rand: rand.New(rand.NewPCG(1, uint64(len(name)))), now: t0, sizes: 5}
			g.pool = endpoint.NewPool(endpoint.PoolOptions{Now: func() time.Time { return g.now }})
			g.pool.Set(specs(g.sizes))
			var c *Cycle
			for i := range 400 {
				if i%2 == 0 { // a change of this kind alone must be noticed
					change(g)
				} else {
					for other, f := range changes {
						if (other < name) == (i%4 == 1) && g.IntN(4) == 0 {
							f(g)
						}
					}
				}
				if c != nil {
					c.Free()
				}
				c = New(Options{Pool: g.pool, Now: g.now, Seed: 1}, &request.Request{})
				g.compare(t, c)
				if t.Failed() {
					return
				}
			}
		})
	}
}

// compare checks the views of c against the endpoints.
func (g *fleetRig) compare(t *testing.T, c *Cycle) {
	t.Helper()
	near := cmp.Options{cmpopts.EquateApprox(1e-12, 1e-15), cmpopts.IgnoreFields(endpoint.Reading{}, "Slots")}
	var seen flags
	slots, free := g.sharedSlots()
	for i := range int32(c.Candidates()) {
		v := c.All(i)
		ep := v.Endpoint
		if ep != g.pool.Snapshot().ByID(int(ep.ID)) {
			t.Fatalf("candidate %d is not the current endpoint", i)
		}
		if v.Cost != ep.Cost() {
			t.Errorf("candidate %d has constants %+v, want %+v", i, v.Cost, ep.Cost())
		}
		if diff := cmp.Diff(g.pool.LoadTracker().Load(ep, g.now), v.Load, near); diff != "" {
			t.Errorf("load of candidate %d: %s", i, diff)
		}
		want := ep.Reading(g.now.UnixNano())
		if diff := cmp.Diff(want, v.Reading, near); diff != "" {
			t.Errorf("gauges of candidate %d: %s", i, diff)
		}
		if r := v.Rank(); r.Slots != slots[ep] || r.otherFree != free[ep.Role] {
			t.Errorf("candidate %d has %d slots, want %d; free elsewhere %v, want %v", i, r.Slots, slots[ep], r.otherFree, free[ep.Role])
		}
		if (v.Ranks > 1) != (v.Rank() != v) || v.Ranks > 1 && v.Rank().Load != v.Load.PerRank(v.Ranks) {
			t.Errorf("candidate %d has %d ranks, and the view of one is %+v", i, v.Ranks, v.Rank())
		}
		r := v.Rank()
		now := Moment{Rate: r.Load.Rate, Busy: r.Load.Busy}
		tokens := float64(g.IntN(20_000))
		now.Wait, now.Memory = r.Waits(g.now, tokens, 200)
		if got := c.Moment(int(i), tokens, 200); got != now {
			t.Errorf("candidate %d has %+v, want %+v", i, got, now)
		}
		var f flags
		f.set(flagRanks, want.Ranks > 1)
		f.set(flagSlots, want.Slots > 0)
		f.set(flagFull, ep.Permits() > 0 && v.Load.Requests >= ep.Permits())
		f.set(flagAdapters, ep.LoRA() != nil)
		f.set(flagHelps, ep.Role&endpoint.RoleDecode == 0)
		seen |= f
	}
	if len(c.avoided) == 0 && c.seen&^flagSlots != seen&^flagSlots || c.seen&flagSlots < seen&flagSlots {
		t.Errorf("properties %b, want %b", c.seen, seen)
	}
}

// sharedSlots returns the sequence limits of the endpoints, and which roles have a free slot.
func (g *fleetRig) sharedSlots() (slots map[*endpoint.Endpoint]int64, free map[endpoint.Role]bool) {
	most := map[endpoint.Role]int64{}
	slots, free = map[*endpoint.Endpoint]int64{}, map[endpoint.Role]bool{}
	for _, ep := range g.pool.Snapshot().Endpoints {
		slots[ep] = ep.Reading(g.now.UnixNano()).PerRank().Slots
		most[ep.Role] = max(most[ep.Role], slots[ep])
	}
	for _, ep := range g.pool.Snapshot().Endpoints {
		r := ep.Reading(g.now.UnixNano())
		if r = r.PerRank(); slots[ep] == 0 && max(r.Ran, int64(r.Running)) <= most[ep.Role] {
			slots[ep] = most[ep.Role]
		}
		requests := g.pool.LoadTracker().RankLoad(ep, g.now).Requests
		free[ep.Role] = free[ep.Role] || slots[ep] == 0 || requests < slots[ep]
	}
	return slots, free
}

// TestRestrictedMarks checks that every reason to exclude an endpoint is noticed.
func TestRestrictedMarks(t *testing.T) {
	for name, f := range map[string]func(ep *endpoint.Endpoint){
		"down": func(ep *endpoint.Endpoint) { ep.SetDown(true) },
		"full": func(ep *endpoint.Endpoint) { ep.Tracker().SetFull(t0, time.Second) },
	} {
		pool := newPool(3)
		read := func() int {
			c := New(Options{Pool: pool, Now: t0, Seed: 1}, &request.Request{})
			defer c.Free()
			return c.Candidates()
		}
		if n := read(); n != 3 {
			t.Errorf("%d candidates, want 3", n)
		}
		f(pool.Snapshot().Endpoints[1])
		if n := read(); n != 2 {
			t.Errorf("%s: %d candidates, want 2", name, n)
		}
		pool.Renew(pool.Snapshot().Endpoints[1])
		f(pool.Snapshot().Endpoints[1])
		if n := read(); n != 2 {
			t.Errorf("%s after a restart: %d candidates, want 2", name, n)
		}
	}
}
