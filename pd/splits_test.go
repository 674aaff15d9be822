package pd

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

func judge(tb testing.TB, p predictedParams) plugin.Decider {
	tb.Helper()
	model, err := p.Model()
	if err != nil {
		tb.Fatal(err)
	}
	return (&prices{p, model}).decider()
}

// TestFailingPairs: a pair that never delivers gets at most 2% of the requests from the tenth on,
// alone or next to a working pair. It is used again soon after it works.
func TestFailingPairs(t *testing.T) {
	cheap := predictedDefaults()
	cheap.OwnWeight, cheap.HandOverSeconds = 0, 0
	for name, decider := range map[string]plugin.Decider{"threshold": Missing(500, 0), "always": Always, "price": judge(t, cheap)} {
		for _, alone := range []bool{true, false} {
			pool := endpoint.NewPool(endpoint.PoolOptions{})
			specs := []endpoint.Spec{
				{Addr: netip.MustParseAddrPort("10.0.0.1:8000"), Labels: map[string]string{endpoint.LabelRole: "decode"}},
				{Addr: netip.MustParseAddrPort("10.0.0.2:8000"), Labels: map[string]string{endpoint.LabelRole: "prefill"}},
				{Addr: netip.MustParseAddrPort("10.0.0.3:8000"), Labels: map[string]string{endpoint.LabelRole: "prefill"}},
			}
			if alone {
				specs = specs[:2]
			}
			pool.Set(specs)
			eps := pool.Snapshot().Endpoints
			pool.LoadTracker().SetRemote(eps[0], endpoint.Load{Requests: 50})
			h, err := New(Options{Decode: profile("decode"), Prefill: profile("prefill"), SplitPrefill: decider})
			if err != nil {
				t.Fatal(err)
			}
			bad, sick := eps[1], true
			send := func(n int) (throughBad, split int) {
				for i := range n {
					c := cycle.New(cycle.Options{Pool: pool, Now: t0, Seed: uint64(i)}, &request.Request{Kind: request.KindChat, InputTokens: 4000})
					plan := &cycle.Plan{}
					if err := h.Handle(c, plan); err != nil {
						t.Fatal(err)
					}
					for _, set := range plan.Headers {
						first, _, _ := strings.Cut(set.Value, ",")
						from := pool.Snapshot().Lookup(first)
						split++
						if from == bad {
							throughBad++
						}
						pool.Splits().Learn(from, eps[0], from != bad || !sick, 0)
					}
					c.Free()
				}
				return throughBad, split
			}
			if _, split := send(9); split == 0 {
				t.Fatalf("%s, alone %v: nothing is split", name, alone)
			}
			const n = 1000
			through, split := send(n)
			if through > n*2/100 || !alone && split < n*98/100 {
				t.Errorf("%s, alone %v: %d of %d requests went through the failing pair, %d were split", name, alone, through, n, split)
			}
			if sick = false; alone {
				send(2 * 64)
				if through, _ := send(100); through < 90 {
					t.Errorf("%s: %d of 100 requests are split after the pair works again", name, through)
				}
			}
		}
	}
}
