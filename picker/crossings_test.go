package picker

import (
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// A placed request counts as a crossing if its endpoint is in another zone than this replica, and
// both zones are known. The reason is whether the zone had an endpoint for it.
func TestZoneCrossingsAreCounted(t *testing.T) {
	for _, c := range []struct {
		replica, endpoint string
		local             bool // the pool also has an overloaded endpoint of the replica's zone
		want              [2]float64
	}{
		{replica: "z1", endpoint: "z2", want: [2]float64{0, 1}}, {replica: "z1", endpoint: "z2", local: true, want: [2]float64{1, 0}},
		{replica: "z1", endpoint: "z1"}, {endpoint: "z2"}, {replica: "z1"},
	} {
		p := endpoint.NewPool(endpoint.PoolOptions{Zone: c.replica})
		spec := endpoint.Spec{Name: "e", Host: "10.0.0.1", Addr: netip.MustParseAddrPort("10.0.0.1:8000")}
		if c.endpoint != "" {
			spec.Labels = map[string]string{"topology.kubernetes.io/zone": c.endpoint}
		}
		specs := []endpoint.Spec{spec}
		if c.local {
			specs = append(specs, endpoint.Spec{
				Name: "local", Host: "10.0.0.2", Addr: netip.MustParseAddrPort("10.0.0.2:8000"),
				Labels: map[string]string{"topology.kubernetes.io/zone": c.replica},
			})
		}
		p.Set(specs)
		if c.local {
			p.LoadTracker().SetRemote(p.Snapshot().Endpoints[1], endpoint.Load{Requests: 100, Waiting: 100, Prefill: 1_000_000, Tokens: 1_000_000})
		}
		s := newScheduler(t, Options{Pool: p})
		if _, err := s.Choose(t.Context(), chatRequest("r", 10)); err != nil {
			t.Fatal(err)
		}
		got := [2]float64{testutil.ToFloat64(s.metrics.crossed[crossedForGain]), testutil.ToFloat64(s.metrics.crossed[crossedWithoutEndpoint])}
		if got != c.want {
			t.Errorf("%+v: crossings by reason %v, want %v", c, got, c.want)
		}
	}
}
