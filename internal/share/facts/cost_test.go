package facts

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestTold checks which changes of learned constants are sent.
func TestTold(t *testing.T) {
	was := endpoint.PriorCost
	was.PrefillSeen, was.DecodeSeen = 20, 20
	f := func(want bool, change func(*endpoint.Cost)) {
		t.Helper()
		is := was
		if change(&is); told(was, is) != want {
			t.Errorf("told = %v of %+v", !want, is)
		}
	}
	f(true, func(*endpoint.Cost) {})
	f(true, func(c *endpoint.Cost) { c.PerToken *= 1.01 })
	f(false, func(c *endpoint.Cost) { c.PerToken *= 1.05 })
	f(false, func(c *endpoint.Cost) { c.Step *= .9 })
	f(true, func(c *endpoint.Cost) { c.PrefillSeen = 23 })
	f(false, func(c *endpoint.Cost) { c.DecodeSeen = 10 })
	if told(endpoint.Cost{}, was) {
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
