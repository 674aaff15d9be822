package picker

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

var t0 = time.Unix(1_700_000_000, 0)

// specs returns n endpoints at 10.0.x.y:8000.
func specs(n int) []endpoint.Spec {
	out := make([]endpoint.Spec, n)
	for i := range out {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000)
		out[i] = endpoint.Spec{Name: fmt.Sprintf("e%d", i), Namespace: "default", Addr: addr}
	}
	return out
}

func newPool(n int) *endpoint.Pool {
	p := endpoint.NewPool(endpoint.PoolOptions{Now: func() time.Time { return t0 }})
	p.Set(specs(n))
	return p
}

// fakeMatcher holds the first tokens[i] tokens of every prompt at endpoint i.
type fakeMatcher struct {
	tokens   []int32
	chosen   []string
	finished []string
}

func (m *fakeMatcher) Match(_ context.Context, _ *request.Request, eps []*endpoint.Endpoint, held []cycle.PrefixMatch) {
	for k, ep := range eps {
		if int(ep.ID) < len(m.tokens) {
			held[k].Run.Tokens[block.TierGPU] = m.tokens[ep.ID]
			held[k].Run.Blocks = m.tokens[ep.ID] / 16
		}
	}
}
func (m *fakeMatcher) Chosen(_ *request.Request, ep *endpoint.Endpoint) {
	m.chosen = append(m.chosen, ep.Address)
}
func (m *fakeMatcher) Finished(_ *request.Request, ep *endpoint.Endpoint, h cycle.PrefixMatch, o request.Outcome) {
	m.finished = append(m.finished, fmt.Sprintf("%s %d %d", ep.Address, h.Run.Total(), o.Status))
}

// The plugins of these tests: uncached tokens as cost, and the best total.
type fewestNew struct{}

func (fewestNew) Score(c *cycle.Cycle, scores []float64) {
	for k := range scores {
		scores[k] = -float64(c.Work(k).New)
	}
}

type fewestRequests struct{}

func (fewestRequests) Score(c *cycle.Cycle, scores []float64) {
	for k := range scores {
		scores[k] = -float64(c.At(k).Load.Requests)
	}
}

type best struct{ n int }

func (b best) Pick(c *cycle.Cycle, totals []float64, order []int32) []int32 {
	for range min(b.n, len(totals)) {
		at := int32(-1)
		for k, v := range totals {
			if (at < 0 || v > totals[at]) && !contains(order, int32(k)) {
				at = int32(k)
			}
		}
		order = append(order, at)
	}
	return order
}

func contains(order []int32, k int32) bool {
	for _, x := range order {
		if x == k {
			return true
		}
	}
	return false
}

type onlyRole endpoint.Role

func (r onlyRole) Filter(c *cycle.Cycle, keep []bool) {
	for k := range keep {
		keep[k] = c.At(k).Role&endpoint.Role(r) != 0
	}
}

// single is the profile handler of these tests.
type single struct{ p *cycle.Profile }

func (s single) Handle(c *cycle.Cycle, plan *cycle.Plan) error {
	plan.Order = append(plan.Order, s.p.Run(c).Order...)
	return nil
}

func testProfile() *cycle.Profile {
	return &cycle.Profile{
		Name:    "default",
		Filters: []cycle.ProfileFilter{{Name: "decode", Filter: onlyRole(endpoint.RoleDecode)}},
		Scorers: []cycle.ProfileScorer{{Name: "new", Weight: 1, Scorer: fewestNew{}}, {Name: "requests", Weight: 1000, Scorer: fewestRequests{}}},
		Picker:  best{3},
	}
}

func newScheduler(tb testing.TB, o Options) *Scheduler {
	tb.Helper()
	if o.Rules == nil {
		o.Rules = &Rules{Handler: single{testProfile()}}
	}
	if o.Now == nil {
		o.Now = func() time.Time { return t0 }
	}
	o.Seed = 1
	s, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func chatRequest(id string, tokens int) *request.Request {
	return &request.Request{ID: id, Path: "/v1/chat/completions", Kind: request.KindChat, Model: "m", Target: "m", InputTokens: tokens, Stream: true}
}
