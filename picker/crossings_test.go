package picker

import (
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// A placed request counts as a crossing if its endpoint is in another zone than this replica, and
// both zones are known.
func TestZoneCrossingsAreCounted(t *testing.T) {
	for _, c := range []struct {
		replica, endpoint string
		want              float64
	}{{"z1", "z2", 1}, {"z1", "z1", 0}, {"", "z2", 0}, {"z1", "", 0}} {
		p := endpoint.NewPool(endpoint.PoolOptions{Zone: c.replica})
		spec := endpoint.Spec{Name: "e", Host: "10.0.0.1", Addr: netip.MustParseAddrPort("10.0.0.1:8000")}
		if c.endpoint != "" {
			spec.Labels = map[string]string{"topology.kubernetes.io/zone": c.endpoint}
		}
		p.Set([]endpoint.Spec{spec})
		s := newScheduler(t, Options{Pool: p})
		if _, err := s.Choose(t.Context(), chatRequest("r", 10)); err != nil {
			t.Fatal(err)
		}
		if got := testutil.ToFloat64(s.metrics.crossed); got != c.want {
			t.Errorf("replica in %q, endpoint in %q: %v crossings, want %v", c.replica, c.endpoint, got, c.want)
		}
	}
}
