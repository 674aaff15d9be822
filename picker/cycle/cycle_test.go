package cycle

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

var t0 = time.Unix(1_700_000_000, 0)

// specs returns n endpoints at 10.0.0.x:8000.
func specs(n int) []endpoint.Spec {
	out := make([]endpoint.Spec, n)
	for i := range out {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8000)
		out[i] = endpoint.Spec{Name: fmt.Sprintf("e%d", i), Namespace: "default", Addr: addr}
	}
	return out
}

func newPool(n int) *endpoint.Pool {
	p := endpoint.NewPool(endpoint.PoolOptions{Now: func() time.Time { return t0 }})
	p.Set(specs(n))
	return p
}

// tierMatcher holds its tokens of every prompt at every endpoint.
type tierMatcher struct{ held [][block.NumTiers]int32 }

func (m *tierMatcher) Match(_ context.Context, _ *request.Request, eps []*endpoint.Endpoint, held []PrefixMatch) {
	for k, ep := range eps {
		held[k].Run.Tokens = m.held[ep.ID]
	}
}

func chatRequest(id string, tokens int) *request.Request {
	return &request.Request{ID: id, Kind: request.KindChat, Model: "m", Target: "m", InputTokens: tokens, Stream: true}
}

// TestPlainPrediction checks that a candidate without a scorer's prediction has the plain model's
// prediction, not a time of zero.
func TestPlainPrediction(t *testing.T) {
	c := New(Options{Pool: newPool(2), Now: t0}, chatRequest("r", 1000))
	defer c.Free()
	c.Predict(0, Prediction{Wait: 7})
	seen, unseen := c.prediction(0, c.WorkAt(0)), c.prediction(1, c.WorkAt(1))
	if seen.TTFT() != 7 || unseen.TTFT() < endpoint.PriorCost.Prefill(endpoint.Work{Input: 1000, New: 1000}) {
		t.Errorf("predicted %+v and %+v", seen, unseen)
	}
}

// Work excludes cached tokens, by their weight, and includes at least one token.
func TestWorkWeighsTiers(t *testing.T) {
	m := &tierMatcher{held: [][block.NumTiers]int32{{100, 200, 300, 0}, {1000, 0, 0, 0}, {}}}
	c := New(Options{Pool: newPool(3), Match: m.Match, Now: t0, Tiers: &TierWeights{1, .5, .25, .1}}, chatRequest("r", 1000))
	defer c.Free()
	for k, want := range []endpoint.Work{{Input: 1000, New: 725}, {Input: 1000, New: 1}, {Input: 1000, New: 1000}} {
		if got := c.Work(k); got != want {
			t.Errorf("candidate %d: %+v, want %+v", k, got, want)
		}
	}
}
