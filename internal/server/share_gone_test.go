package server

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// What a replica told the others of endpoints goes with the endpoints: pools whose
// endpoints change their addresses all the time fill no table.
func TestGoneEndpointsAreForgotten(t *testing.T) {
	g := newGroupWith(t, 2, 10000, group{share: "mesh", change: func(o *Options) { o.Keep = -1 }})
	teller, told := g.replicas[0], g.replicas[1]
	for _, ep := range teller.pool.Snapshot().Endpoints {
		ep.ObservePrefill(&endpoint.Queued{Own: endpoint.Work{Input: 1000, New: 1000}, At: time.Unix(1, 0)}, time.Second)
	}
	constants := func(n int) func() string {
		return func() string {
			if got := told.costs.Endpoints(); got != n {
				return fmt.Sprintf("of %d endpoints", got)
			}
			return ""
		}
	}
	testkit.Eventually(g.t, constants(groupEngines))
	one, err := fleet.Open(fleet.Options{Engines: 1, Engine: sim.Options{Speed: math.Inf(1), Events: &sim.EventOptions{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if err := one.WriteEndpoints(filepath.Join(g.dir, "endpoints.yaml")); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(g.t, constants(0))
}
