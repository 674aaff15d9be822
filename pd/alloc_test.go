//go:build !race

package pd

import (
	"net/netip"
	"testing"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestAllocations holds that a request which is not split costs no memory, and
// one that is only the header's text and two closures.
func TestAllocations(t *testing.T) {
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set([]endpoint.Spec{
		{Addr: netip.MustParseAddrPort("10.0.0.1:8000")},
		{Addr: netip.MustParseAddrPort("10.0.0.2:8000"), Labels: map[string]string{endpoint.LabelRole: "prefill"}},
		{Addr: netip.MustParseAddrPort("10.0.0.3:8000"), Labels: map[string]string{endpoint.LabelRole: "prefill"}},
	})
	r := &request.Request{Kind: request.KindChat, InputTokens: 1000}
	f := func(tokens int, want float64) {
		t.Helper()
		h, err := New(Options{Decode: profile("decode"), Prefill: profile("prefill"), SplitPrefill: Missing(tokens, 0)})
		if err != nil {
			t.Fatal(err)
		}
		plan := &picker.Plan{}
		decide := func() {
			c := picker.NewCycle(picker.CycleOptions{Pool: pool, Now: t0, Seed: 1}, r)
			plan.Order, plan.Headers, plan.Also, plan.Stages = plan.Order[:0], plan.Headers[:0], plan.Also[:0], plan.Stages[:0]
			if err := h.Handle(c, plan); err != nil {
				t.Error(err)
			}
			c.Free()
		}
		decide()
		if n := testing.AllocsPerRun(50, decide); n > want {
			t.Errorf("missing %d: %v allocations, want at most %v", tokens, n, want)
		}
	}
	f(2000, 0)
	f(500, 5)
}
