package saved

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/grapevine-epp/grapevine/internal/testkit/fields"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestRestoredEndpointIsEqual: an endpoint that is restored from status has the same facts and gauges. Every
// field of both is set.
func TestRestoredEndpointIsEqual(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var want Endpoint
	fields.Fill(&want)
	want.Address, want.Facts.Load.SinceFirstS, want.GaugeAgeS, want.Health.State = "10.0.0.1:8000", 3, 1, "healthy"
	want.Facts.Cost.Step = 1 // costs of loads with certain terms
	want.Facts.Load.Busy = .5

	spec, ok := want.Spec()
	if !ok {
		t.Fatal("Spec() refuses the address")
	}
	for _, name := range fields.Unset(spec, "Cluster", "Rank", "Models", "Events", "Metrics", "Instance") { // facts that decisions do not use
		t.Errorf("Spec.%s is not set", name)
	}
	pool := endpoint.NewPool(endpoint.PoolOptions{Now: func() time.Time { return now }})
	pool.Set([]endpoint.Spec{spec})
	ep := pool.Snapshot().Endpoints[0]
	want.Restore(pool, ep, now)
	g := ep.Gauges()
	got := Endpoint{
		Address: ep.Address, Name: ep.Name, Up: !ep.Down(), InFlight: want.InFlight, Values: g.Values, GaugeAgeS: now.Sub(g.At).Seconds(),
		Facts: FactsOf(pool, ep, now), Health: want.Health,
	}
	learned := cmpopts.IgnoreFields(endpoint.Cost{}, "Uncertainty", "Noise") // of this process's measurements
	if diff := cmp.Diff(want, got, learned, cmpopts.EquateApprox(0, 1e-9), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("restored endpoint (-want +got):\n%s", diff)
	}
	for _, name := range fields.Unset(*got.Facts, "Cost.Uncertainty") {
		t.Errorf("Facts.%s is not set", name)
	}
}

// TestRestoreWithoutFacts: all in-flight requests of an endpoint without facts count, and an endpoint that is
// not up is down unless it was never reached.
func TestRestoreWithoutFacts(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for state, down := range map[string]bool{"unreached": false, "healthy": true} {
		e := Endpoint{Address: "10.0.0.1:8000", InFlight: 7, GaugeAgeS: -1}
		e.Health.State = state
		spec, _ := e.Spec()
		pool := endpoint.NewPool(endpoint.PoolOptions{})
		pool.Set([]endpoint.Spec{spec})
		ep := pool.Snapshot().Endpoints[0]
		e.Restore(pool, ep, now)
		if l := pool.LoadTracker().Load(ep, now); l.Requests != 7 || ep.Down() != down || !ep.Gauges().At.IsZero() {
			t.Errorf("%s: %d requests, down %v, gauges of %v, want 7, %v and none", state, l.Requests, ep.Down(), ep.Gauges().At, down)
		}
	}
}
