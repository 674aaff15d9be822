package cycle

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestReady checks which engines lack a request's adapter, what the load costs, and that full slots
// have to be waited for.
func TestReady(t *testing.T) {
	pool := endpoint.NewPool(endpoint.PoolOptions{Now: func() time.Time { return t0 }})
	pool.Set([]endpoint.Spec{{Addr: netip.MustParseAddrPort("10.0.0.1:8000")}, {Addr: netip.MustParseAddrPort("10.0.0.2:8000")}, {Addr: netip.MustParseAddrPort("10.0.0.3:8000")}})
	for range 10 {
		pool.NeedTimes().Observe(endpoint.Needs(0).With(endpoint.NeedAdapter), .5)
	}
	eps := pool.Snapshot().Endpoints
	pool.SetModels(eps[0].ID, endpoint.ModelList{Models: []endpoint.Model{{Name: "m"}}}, t0)
	eps[0].SetGauges(endpoint.Gauges{At: t0, LoRA: &endpoint.LoRA{Max: 2, Running: []string{"a"}}})
	eps[1].SetGauges(endpoint.Gauges{At: t0, LoRA: &endpoint.LoRA{Max: 2, Running: []string{"b", "c"}}})
	for _, x := range []struct {
		name    string
		request request.Request
		at      int
		missing bool
		wait    bool
	}{
		{"a running adapter", request.Request{Model: "a", Target: "a", Adapter: "a"}, 0, false, false},
		{"an adapter that is not loaded", request.Request{Model: "z", Target: "z", Adapter: "z"}, 0, true, false},
		{"an adapter by its model name alone", request.Request{Model: "z", Target: "z"}, 0, true, false},
		{"the base model", request.Request{Model: "m", Target: "m"}, 0, false, false},
		{"slots full of other adapters", request.Request{Model: "a", Target: "a", Adapter: "a"}, 1, true, true},
		{"an engine without a report", request.Request{Model: "a", Target: "a", Adapter: "a"}, 2, true, false},
		{"a model at an engine without a report", request.Request{Model: "m", Target: "m"}, 2, false, false},
	} {
		c := New(Options{Pool: pool, Now: t0, Seed: 1}, &x.request)
		c.AllowAll()
		r := c.Ready(c.At(x.at), 100)
		if r.Missing.Has(endpoint.NeedAdapter) != x.missing || (r.Load == .5) != x.missing || (r.Wait > 0) != x.wait {
			t.Errorf("%s: %+v, want missing %v, wait %v", x.name, r, x.missing, x.wait)
		}
		c.Free()
	}
	c := New(Options{Pool: pool, Now: t0, Seed: 1}, &request.Request{Model: "z", Target: "z", Adapter: "z"})
	defer c.Free()
	c.AllowAll()
	if c.UseNeeds(c.At(0)); c.Ready(c.At(0), 100).Missing != 0 {
		t.Error("an adapter is missing where its request was sent")
	}
}

// TestSkippedPasses checks that the passes over the candidates that are skipped because nothing asks
// for them would change nothing.
func TestSkippedPasses(t *testing.T) {
	for i := range 64 {
		pool := endpoint.NewPool(endpoint.PoolOptions{Now: func() time.Time { return t0 }})
		specs := make([]endpoint.Spec, 3)
		for k := range specs {
			specs[k].Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(k)}), 8000)
			if i&8 != 0 && k == 0 {
				specs[k].Labels = map[string]string{endpoint.LabelRole: "prefill"}
			}
		}
		pool.Set(specs)
		for k, ep := range pool.Snapshot().Endpoints {
			g := endpoint.Gauges{At: t0, Values: gauge.Values{Running: k}, Ranks: 1 + i&1}
			if ep.SetGauges(g); i&2 != 0 && k == 1 {
				ep.SetSlots(4, t0)
			}
			pool.LoadTracker().SetRemote(ep, endpoint.Load{Requests: int64(i >> 4 * k)})
		}
		c := New(Options{Pool: pool, Now: t0, Seed: 1}, &request.Request{Model: "m", Target: "m"})
		type state struct {
			slots       int64
			free, ranks bool
		}
		read := func() (out []state) {
			for k := range c.views {
				v := c.All(int32(k)).Rank()
				out = append(out, state{v.Slots, v.otherFree, c.views[k].rank != nil})
			}
			return out
		}
		before := read()
		c.fleet.turn++ // sets the views anew
		c.fleet.shareSlots(c.places)
		if after := read(); !slices.Equal(before, after) {
			t.Errorf("pool %d: %+v, with all passes %+v", i, before, after)
		}
		c.Free()
	}
}
