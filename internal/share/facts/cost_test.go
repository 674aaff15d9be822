package facts

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestInvalidTextIsRepaired checks which changes of learned constants are sent.
func TestInvalidTextIsRepaired(t *testing.T) {
	was := endpoint.PriorCost
	was.PrefillSeen, was.DecodeSeen = 20, 20
	f := func(want bool, change func(*endpoint.Cost)) {
		t.Helper()
		is := was
		if change(&is); nearlyEqual(was, is) != want {
			t.Errorf("nearlyEqual() = %v for %+v", !want, is)
		}
	}
	f(true, func(*endpoint.Cost) {})
	f(true, func(c *endpoint.Cost) { c.PerToken *= 1.01 })
	f(false, func(c *endpoint.Cost) { c.PerToken *= 1.05 })
	f(false, func(c *endpoint.Cost) { c.Step *= .9 })
	f(true, func(c *endpoint.Cost) { c.PrefillSeen = 23 })
	f(false, func(c *endpoint.Cost) { c.DecodeSeen = 10 })
	if nearlyEqual(endpoint.Cost{}, was) {
		t.Error("first constants are not sent")
	}
}

// TestTenThousandEndpointsFit: constants of ten thousand endpoints fit in the gauge.
func TestTenThousandEndpointsFit(t *testing.T) {
	n := cluster.New(cluster.Options{Self: cluster.Member{ID: "a", Boot: 1}, Bus: cluster.None{}})
	costs, loads := n.Gauge(stateCost, StateVersion, &Costs{}), n.Gauge(stateLoad, StateVersion, &Load{})
	now := time.Now()
	cost := appendCost(nil, &endpoint.Cost{})
	load := appendLoad(nil, endpoint.Load{Requests: 255, Waiting: 99, Prefill: 1e6, Tokens: 1e6, Context: 1e7, Moving: 9, LastFirst: now.Add(-time.Hour).UnixNano()}, now)
	for i := range 10_000 {
		address := fmt.Sprintf("100.200.%d.%d:8000", 100+i/100, 100+i%100)
		if err := errors.Join(costs.Set(address, cost), loads.Set(address, load)); err != nil {
			t.Fatalf("after %d endpoints: %v", i, err)
		}
	}
}

// TestDepartedCosts: constants of replicas that have all departed stay while this replica has no
// samples of its own, and its own samples outweigh them after that. Constants that are withdrawn,
// because the engine is another one, do not stay.
func TestDepartedCosts(t *testing.T) {
	const address = "10.0.0.1:8000"
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set([]endpoint.Spec{{Addr: netip.MustParseAddrPort(address)}})
	ep := pool.Snapshot().Known(address)
	c := &Costs{o: CostOptions{Pool: pool}}
	merge := func(origin string, factor float64) {
		t.Helper()
		cost := endpoint.PriorCost
		cost.PerToken *= factor
		cost.PrefillSeen, cost.DecodeSeen = 25, 25
		if err := c.Merge(origin, 1, address, appendCost(nil, &cost)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, factor float64) {
		t.Helper()
		if got := ep.Cost().PerToken / endpoint.PriorCost.PerToken; math.Abs(got-factor) > .01*factor {
			t.Errorf("%s: %.2f times the prior, want %.2f", what, got, factor)
		}
	}
	merge("a", 2)
	merge("b", 4)
	check("both replicas", 3)
	c.Drop("b")
	check("one has departed", 2)
	c.Drop("a")
	check("both have departed", 2)
	for range 25 {
		ep.ObservePrefill(&endpoint.Queued{Own: endpoint.Work{Input: 4000, New: 4000}}, time.Duration(4*endpoint.PriorCost.Prefill(endpoint.Work{Input: 4000, New: 4000})*float64(time.Second)))
	}
	if got := ep.Cost().PerToken / endpoint.PriorCost.PerToken; got < 3 {
		t.Errorf("after 25 samples of four times the prior: %.2f times the prior, want at least 3", got)
	}

	merge("a", 2)
	if err := c.Merge("a", 1, address, nil); err != nil {
		t.Fatal(err)
	}
	if got, own := ep.Cost().PerToken, ep.LocalCost().PerToken; got != own {
		t.Errorf("withdrawn constants still count: %v, want this replica's %v", got, own)
	}
}

// TestIdleReplicaSendsExpiry checks that a replica without requests withdraws its verdict on an engine
// that was slow once, because the other replicas use it.
func TestIdleReplicaSendsExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := endpoint.NewPool(endpoint.PoolOptions{Now: time.Now})
		specs := make([]endpoint.Spec, 4)
		for i := range specs {
			specs[i].Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8000)
		}
		eps := pool.Set(specs).Snapshot.Endpoints
		var sent atomic.Pointer[endpoint.Cost] // of the slow engine
		c := NewCosts(CostOptions{Pool: pool, Group: Group{Gauge: func(string, uint64, cluster.GaugeSink) SetFunc {
			return func(address string, value []byte) error {
				cost, err := readCost(value)
				if address == eps[0].Address {
					sent.Store(&cost)
				}
				return err
			}
		}}})
		w := endpoint.Work{Input: 1000, New: 1000}
		learn := func(ep *endpoint.Endpoint, ttft time.Duration) {
			pool.LearnPrefill(ep, &endpoint.Queued{Own: w, At: time.Now()}, ttft)
		}
		for i := range 45 {
			learn(eps[1+i%3], 70*time.Millisecond)
		}
		learn(eps[0], time.Second)
		learn(eps[1], 70*time.Millisecond) // its samples show that the slow answer is exceptional
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go c.Run(ctx)
		last := func() float64 { return sent.Load().Prefill(w) }
		time.Sleep(2 * time.Second)
		if got := last(); got < .1 {
			t.Errorf("after a slow answer: %.3f s sent, want more than 0.1 s", got)
		}
		time.Sleep(2 * time.Minute)
		if got := last(); got > .08 {
			t.Errorf("two minutes later: %.3f s sent, want at most 0.08 s", got)
		}
	})
}
