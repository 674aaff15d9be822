package picker

import (
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestFullestShare checks that the metric covers all replicas, and is absent while no request is in
// flight.
func TestFullestShare(t *testing.T) {
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	f := func(want float64, requests ...int64) {
		t.Helper()
		for i, ep := range pool.Snapshot().Endpoints {
			pool.LoadTracker().SetRemote(ep, endpoint.Load{Requests: requests[i]})
		}
		if got := fullestShare(pool, time.Unix(1, 0)); got != want {
			t.Errorf("%v in flight: %v, want %v", requests, got, want)
		}
	}
	f(0)
	var specs []endpoint.Spec
	for i := range byte(3) {
		specs = append(specs, endpoint.Spec{Name: string('a' + rune(i)), Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, i}), 8000)})
	}
	pool.Set(specs)
	f(0, 0, 0, 0)
	f(.5, 2, 1, 1)
	f(1, 0, 7, 0)
	f(.5, 1, -3, 1) // an invalid value from a peer counts as none
}
