package picker

import (
	"net/netip"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

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

// TestExemplars: a duration of a traced request has the id of its trace as the exemplar, and no other
// duration has one.
func TestExemplars(t *testing.T) {
	for _, trace := range []string{"", "0af7651916cd43dd8448eb211c80319c"} {
		h := histogram("x", "y", []float64{1, 2})
		observe(h, 1500*time.Millisecond, trace)
		var m dto.Metric
		if err := h.Write(&m); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, b := range m.GetHistogram().GetBucket() {
			for _, l := range b.GetExemplar().GetLabel() {
				got += l.GetName() + "=" + l.GetValue()
			}
		}
		want := ""
		if trace != "" {
			want = "trace_id=" + trace
		}
		if got != want || m.GetHistogram().GetSampleSum() != 1.5 {
			t.Errorf("observe(%q): exemplar %q, sum %v, want %q", trace, got, m.GetHistogram().GetSampleSum(), want)
		}
	}
}
