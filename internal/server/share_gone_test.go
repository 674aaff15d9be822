package server

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// What replicas told each other of endpoints goes with the endpoints: pools whose
// endpoints change their addresses all the time fill no table.
func TestGoneEndpointsAreForgotten(t *testing.T) {
	g := newGroup(t, 2, 10000, "mesh")
	teller, told := g.replicas[0], g.replicas[1]
	for _, ep := range teller.pool.Snapshot().Endpoints {
		ep.ObservePrefill(&endpoint.Queued{Own: endpoint.Work{Input: 1000, New: 1000}, At: time.Unix(1, 0)}, time.Second)
	}
	g.eventually("constants told", func() string {
		told.costs.mu.Lock()
		defer told.costs.mu.Unlock()
		if n := len(told.costs.costs); n != groupEngines {
			return fmt.Sprintf("of %d endpoints", n)
		}
		return ""
	})
	told.share.mu.Lock()
	if n := len(told.share.past); n != groupEngines {
		t.Errorf("past lives of %d sources", n)
	}
	told.share.past["long gone/0"] = pastLife{1, time.Now().Add(-pastMemory)}
	told.share.past["just gone/0"] = pastLife{1, time.Now()}
	told.share.mu.Unlock()

	one, err := sim.OpenFleet(sim.FleetOptions{Engines: 1, Engine: sim.Options{Speed: math.Inf(1), Events: &sim.EventOptions{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	// A peer may know an endpoint first.
	cost := endpoint.PriorCost
	cost.PerToken, cost.PrefillSeen = 123e-6, 1000
	if err := told.costs.Merge("another", stateVersion, one.Engines()[0].Addr(), appendCost(nil, &cost)); err != nil {
		t.Fatal(err)
	}
	if err := one.WriteEndpoints(filepath.Join(g.dir, "endpoints.yaml")); err != nil {
		t.Fatal(err)
	}
	g.eventually("another endpoint, and no word on the others", func() string {
		ep := told.pool.Snapshot().Lookup(one.Engines()[0].Addr())
		if ep == nil || ep.Cost().PerToken != cost.PerToken {
			return "its constants are not known"
		}
		told.costs.mu.Lock()
		defer told.costs.mu.Unlock()
		if n := len(told.costs.costs); n != 1 {
			return fmt.Sprintf("constants of %d endpoints", n)
		}
		return ""
	})
	told.share.mu.Lock()
	defer told.share.mu.Unlock()
	if _, ok := told.share.past["just gone/0"]; !ok || told.share.past["long gone/0"].inc != 0 {
		t.Errorf("past lives: %v", told.share.past)
	}
}
