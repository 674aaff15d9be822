package pd

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestRevisionsAreNotPaired: whatever the fleet, the endpoints that a request's headers name, and the
// destinations that the proxy may try with these headers, pair with each other.
func TestRevisionsAreNotPaired(t *testing.T) {
	const label = "example.com/release"
	splits := map[string]int{}
	deciders := map[string]plugin.Decider{"always": Always, "missing": Missing(100, 0), "price": judge(t, predictedDefaults())}
	rapid.Check(t, func(t *rapid.T) {
		pool := endpoint.NewPool(endpoint.PoolOptions{RevisionLabels: []string{label, endpoint.LabelRevision}})
		labelled := rapid.Bool().Draw(t, "all are labelled")
		specs := make([]endpoint.Spec, rapid.IntRange(2, 12).Draw(t, "endpoints"))
		for i := range specs {
			labels := map[string]string{endpoint.LabelRole: rapid.SampledFrom([]string{"decode", "prefill", "both", "encode"}).Draw(t, "role")}
			if labelled || rapid.Bool().Draw(t, "labelled") {
				labels[rapid.SampledFrom([]string{label, endpoint.LabelRevision}).Draw(t, "label")] = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "revision")
			}
			if rapid.IntRange(0, 3).Draw(t, "engine") == 0 {
				labels[endpoint.LabelEngine] = "sglang"
			}
			specs[i] = endpoint.Spec{Addr: netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:8000", i+1)), Labels: labels}
		}
		pool.Set(specs)
		for _, ep := range pool.Snapshot().Endpoints {
			pool.LoadTracker().SetRemote(ep, endpoint.Load{Requests: rapid.Int64Range(0, 50).Draw(t, "requests")})
		}
		name := rapid.SampledFrom([]string{"always", "missing", "price"}).Draw(t, "decider")
		h, err := New(Options{
			Decode: profile("decode"), Prefill: profile("prefill"), Encode: profile("encode"), SplitPrefill: deciders[name], SplitEncode: Media,
			NeedPrefill: rapid.Bool().Draw(t, "needs prefill"),
		})
		if err != nil {
			t.Fatal(err)
		}
		r := &request.Request{Kind: request.KindChat, InputTokens: 4000}
		r.Prompt.Media = rapid.IntRange(0, 2).Draw(t, "media")
		c := cycle.New(cycle.Options{Pool: pool, Now: t0, Seed: rapid.Uint64().Draw(t, "seed")}, r)
		defer c.Free()
		if err := h.Handle(c, c.Plan()); err != nil || len(c.Plan().Order) == 0 {
			return
		}
		lookup := func(address string) *endpoint.Endpoint {
			ep := pool.Snapshot().Lookup(address)
			if ep == nil {
				t.Fatalf("the decision names %q", address)
			}
			return ep
		}
		destinations := c.Destinations(nil)
		for _, set := range c.Plan().Headers {
			splits[set.Name]++
			for address := range strings.SplitSeq(set.Value, ",") {
				for _, to := range destinations {
					if from, to := lookup(address), lookup(to); from.Revision != "" && to.Revision != "" && from.Revision != to.Revision {
						t.Errorf("%s %s of revision %q for %s of revision %q", set.Name, from.Address, from.Revision, to.Address, to.Revision)
					}
				}
			}
		}
		if v := c.All(c.Plan().Order[0]); consumes(v) && v.Revision != "" && !prefillOf(c, v.Endpoint) {
			t.Errorf("%s only decodes, and no prefill endpoint pairs with it", v.Address)
		}
	})
	for _, name := range []string{request.HeaderPrefiller, request.HeaderEncoders} {
		if splits[name] == 0 {
			t.Errorf("no request had %s", name)
		}
	}
}
