//go:build !race

package pd

import (
	"net/netip"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestAllocations checks that a request that is not split allocates nothing, and a split one only
// the header's text and two closures.
func TestAllocations(t *testing.T) {
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set([]endpoint.Spec{
		{Addr: netip.MustParseAddrPort("10.0.0.1:8000")},
		{Addr: netip.MustParseAddrPort("10.0.0.2:8000"), Labels: map[string]string{endpoint.LabelRole: "prefill"}},
		{Addr: netip.MustParseAddrPort("10.0.0.3:8000"), Labels: map[string]string{endpoint.LabelRole: "prefill"}},
	})
	r := &request.Request{Kind: request.KindChat, InputTokens: 1000}
	f := func(name string, d plugin.Decider, want float64) {
		t.Helper()
		h, err := New(Options{Decode: profile("decode"), Prefill: profile("prefill"), SplitPrefill: d})
		if err != nil {
			t.Fatal(err)
		}
		plan := &cycle.Plan{}
		decide := func() {
			c := cycle.New(cycle.Options{Pool: pool, Now: t0, Seed: 1}, r)
			plan.Order, plan.Headers, plan.Also, plan.Stages = plan.Order[:0], plan.Headers[:0], plan.Also[:0], plan.Stages[:0]
			if err := h.Handle(c, plan); err != nil {
				t.Error(err)
			}
			c.Free()
		}
		decide()
		if n := testing.AllocsPerRun(50, decide); n > want {
			t.Errorf("%s: %v allocations, want at most %v", name, n, want)
		}
	}
	dear, cheap := predictedDefaults(), predictedDefaults()
	cheap.OwnWeight, cheap.TransferSeconds = 0, 0
	for _, ep := range pool.Snapshot().Endpoints[:1] {
		pool.LoadTracker().SetRemote(ep, endpoint.Load{Requests: 50})
	}
	f("little is missing", Missing(2000, 0), 0)
	f("split", Missing(500, 0), 3)
	dear.TransferSeconds = 10
	f("dear", judge(t, dear), 0)
	f("cheap", judge(t, cheap), 3)
}

func BenchmarkPrice(b *testing.B) {
	var specs []endpoint.Spec
	for i := range 64 {
		role := "decode"
		if i%4 == 0 {
			role = "prefill"
		}
		specs = append(specs, endpoint.Spec{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8000), Labels: map[string]string{endpoint.LabelRole: role}})
	}
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set(specs)
	for i, ep := range pool.Snapshot().Endpoints {
		pool.LoadTracker().SetRemote(ep, endpoint.Load{Requests: int64(i % 7)})
	}
	j := judge(b, predictedDefaults())
	r := &request.Request{Kind: request.KindChat, InputTokens: 8000}
	c := cycle.New(cycle.Options{Pool: pool, Now: t0, Seed: 1}, r)
	defer c.Free()
	var among plugin.Among
	for i := range int32(64) {
		if i%4 == 0 {
			among.Help = append(among.Help, i)
		} else {
			among.Serve = append(among.Serve, i)
		}
	}
	among.Whole = among.Serve[0]
	b.ReportAllocs()
	for b.Loop() {
		j.Pair(c, among)
	}
}
