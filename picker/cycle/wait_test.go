package cycle

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/endpoint/fit"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestViewWait checks that gauges bound the wait from below: by load missing in the load tracker,
// by memory, and by the sequence limit.
func TestViewWait(t *testing.T) {
	cost := endpoint.Cost{PerToken: 1e-3, Step: .02}
	queue := endpoint.Load{Requests: 12, Waiting: 2, Prefill: 1000, LastFirst: t0.UnixNano()}
	f := func(what string, v View, want float64) {
		t.Helper()
		v.Cost = &cost
		if got := v.Wait(t0, 500, 100); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	f("nothing", View{}, 0)
	f("the book alone", View{Load: queue}, 1)
	f("gauges that agree", View{Load: queue, Reading: endpoint.Reading{Sampled: true, Values: gauge.Values{Waiting: 2, Running: 10}}}, 1)
	f("gauges too old", View{Load: queue, Reading: endpoint.Reading{Sampled: true, Age: time.Minute, Values: gauge.Values{Waiting: 8, Running: 10}}}, 1)
	f("two more that others sent", View{Load: queue, Reading: endpoint.Reading{Sampled: true, Values: gauge.Values{Waiting: 4, Running: 10}}}, 2)
	f("only others' requests", View{Reading: endpoint.Reading{Sampled: true, Values: gauge.Values{Waiting: 3, Running: 10}}}, .02)
	// 500 new tokens and 200 free: 300 of 9,800 used become free in 100 steps.
	f("memory", View{Reading: endpoint.Reading{Sampled: true, Values: gauge.Values{Running: 10, KVUse: .98}, Capacity: 10_000}}, 300./9800*100*.02)
	// Forty small requests wait although they would fit into one step.
	small := endpoint.Load{Requests: 50, Waiting: 40, Prefill: 400, LastFirst: t0.UnixNano()}
	f("limit of sequences", View{Load: small, Reading: endpoint.Reading{Sampled: true, Values: gauge.Values{Waiting: 40, Running: 10}}}, 41./10*100*.02)

	// Of three that run for 100 steps of .02 s, one ends every third of that.
	slots := View{Load: endpoint.Load{Requests: 4}, Reading: endpoint.Reading{Sampled: true, Values: gauge.Values{Running: 3}, Slots: 3}, otherFree: true}
	f("all slots taken, and one waits", slots, 2./3*100*.02)
	slots.Load.Requests = 2
	f("a free slot", slots, 0)
	slots.Load.Requests, slots.otherFree = 4, false
	f("nobody has a free slot", slots, 0)
}

// TestShareSlots: an engine's known slot count applies to engines of its role that have not run
// more. A slot is free while one of these engines has one.
func TestShareSlots(t *testing.T) {
	view := func(role endpoint.Role, requests, running, slots int64) slotTerms {
		var s fit.Slots
		s.Set(slots, time.Unix(0, 1))
		return slotTerms{s.Keep(), running, requests, role}
	}
	for name, x := range map[string]struct {
		views []slotTerms
		slots []int64
		free  []bool
	}{
		"nobody has shown any": {
			[]slotTerms{view(endpoint.RoleDecode, 9, 9, 0), view(endpoint.RoleDecode, 9, 9, 0)}, []int64{0, 0}, []bool{true, true},
		},
		"one has, and is full": {
			[]slotTerms{view(endpoint.RoleDecode, 4, 4, 4), view(endpoint.RoleDecode, 3, 3, 0)}, []int64{4, 4}, []bool{true, true},
		},
		"both are": {
			[]slotTerms{view(endpoint.RoleDecode, 4, 4, 4), view(endpoint.RoleDecode, 5, 4, 0)}, []int64{4, 4}, []bool{false, false},
		},
		"the other runs more": {
			[]slotTerms{view(endpoint.RoleDecode, 4, 4, 4), view(endpoint.RoleDecode, 9, 9, 0)}, []int64{4, 0}, []bool{true, true},
		},
		"another role": {
			[]slotTerms{view(endpoint.RolePrefill, 1, 1, 1), view(endpoint.RoleDecode, 9, 1, 0)}, []int64{1, 0}, []bool{false, true},
		},
	} {
		f := fleet{slots: x.views, limits: make([]int64, len(x.views))}
		f.clock.Set(1)
		f.shareSlots([]int32{0, 1})
		for i, s := range x.views {
			if f.limits[i] != x.slots[i] || f.free[s.role] != x.free[i] {
				t.Errorf("%s: endpoint %d has %d slots, one is free: %v", name, i, f.limits[i], f.free[s.role])
			}
		}
	}
}

// TestViewWaitOfRoom: requests dispatched but not yet arrived take memory before a new request.
// Memory shared by running requests is not counted twice.
func TestViewWaitOfRoom(t *testing.T) {
	cost := endpoint.Cost{Step: .02}
	f := func(what string, tokens, context int64, use, want float64) {
		t.Helper()
		v := View{Cost: &cost, Load: endpoint.Load{Requests: 10, Tokens: tokens, Context: context}, Reading: endpoint.Reading{Sampled: true, Values: gauge.Values{Running: 10, KVUse: use}, Capacity: 10_000}}
		if got := v.WaitOfRoom(500, 100); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	f("nothing runs", 8000, 0, 0, 0)
	f("there is room", 9000, 6000, .6, 0)
	f("more is to come", 12_000, 6000, .6, 2500./6000*100*.02)
	f("half of it is shared", 12_000, 6000, .3, 0)
	f("all that runs, and as much again", 20_000, 10_000, 1, 10_500./10_000*100*.02)
}

// TestRankView: the wait of an engine with several ranks is the wait of one rank. All other values
// are for the whole engine; slots are compared by rank.
func TestRankView(t *testing.T) {
	pool := endpoint.NewPool(endpoint.PoolOptions{Prior: endpoint.Cost{PerToken: 1e-3, Step: .02}})
	pool.Set([]endpoint.Spec{{Name: "four", Addr: netip.MustParseAddrPort("10.0.0.1:8000")}, {Name: "one", Addr: netip.MustParseAddrPort("10.0.0.2:8000")}})
	eps := pool.Snapshot().Endpoints
	for i, n := range []int64{4, 1} {
		pool.LoadTracker().SetRemote(eps[i], endpoint.Load{Requests: 12 * n, Waiting: 2 * n, Prefill: 1000 * n, LastFirst: t0.UnixNano()})
		eps[i].SetGauges(endpoint.Gauges{At: t0, Ranks: int(n), Values: gauge.Values{Waiting: int(4 * n), Running: int(10 * n), KVUse: .5}, BlockSize: 16, Blocks: int(1000 * n)})
		eps[i].SetSlots(10*n, t0)
	}
	c := New(Options{Pool: pool, Now: t0}, &request.Request{Model: "m", InputTokens: 100})
	defer c.Free()
	four, one := c.All(0), c.All(1)
	if four.Load.Requests != 48 || four.Waiting != 16 || four.Slots != 40 {
		t.Errorf("the whole: %+v", four)
	}
	if one.Rank() != one {
		t.Error("an engine alone is not its own rank")
	}
	if a, b := four.Rank().Wait(t0, 500, 100), one.Wait(t0, 500, 100); a != b || a == 0 {
		t.Errorf("a rank of four waits %v s, one engine %v s", a, b)
	}
	if a, b := four.Rank().Slots, one.Slots; a != b || four.Rank().otherFree != one.otherFree {
		t.Errorf("%d and %d slots", a, b)
	}
}
