package prefix

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestBasis: if events are not the only data source, the status shows the source of predictions,
// how much sent data is kept, and which measurements correct it.
func TestBasis(t *testing.T) {
	h, blocks := block.NewHasher(block.Seed{1}), 0
	now := time.Unix(1_800_000_000, 0)
	m := New(Options{
		Index: indexer.New(indexer.Options{Hasher: h}), Approx: approx.New(approx.Options{Hasher: h}), Now: func() time.Time { return now },
		StreamInfo: func(*endpoint.Endpoint) StreamInfo { return StreamInfo{Blocks: blocks} },
	})
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set(fleetOf(1))
	ep := pool.Snapshot().Endpoints[0]
	f := func(state knowledge.State, want string) {
		t.Helper()
		if got := m.Basis(ep, state); got != want {
			t.Errorf("%v: %q, want %q", state, got, want)
		}
	}
	f(knowledge.Exact, "")
	f(knowledge.Partial, "")
	const alone = "the requests sent to it"
	f(knowledge.Approximate, alone+", limited to the most recent ones because the engine does not report its cache size; not confirmed by answers or metrics yet")
	blocks = 5
	f(knowledge.CatchingUp, "its events or the requests sent to it, whichever predicts more, limited to the most recent ones because the engine does not report its cache size; not confirmed by answers or metrics yet")
	m.Sized(ep, 1000, 16)
	f(knowledge.Mismatched, "its events or the requests sent to it, whichever was closer to its answers, limited to the engine's cache size; not confirmed by answers or metrics yet")
	blocks = 0
	u := m.reuses.make(ep.ID)
	m.Counted(ep, Reused{Tokens: 0, Counts: true})
	for i := range 2 * reuseEnough {
		u.ended(1000, 64)
		m.Counted(ep, Reused{Tokens: float64(1000 * (i + 1)), Counts: true})
	}
	f(knowledge.Approximate, alone+", limited to the engine's cache size; corrected by its metrics page")
	of, _ := m.audits.LoadOrStore("m", newAudits("m"))
	of.(*audits).with(ep.ID, func(r *record) { r.observeReport(true, true) })
	f(knowledge.Approximate, alone+", limited to the engine's cache size; corrected by its answers and its metrics page")
	m.SetSizing(Sizing{Blocks: 10, Fixed: true}, nil)
	f(knowledge.Approximate, alone+", limited to the configured cache size; corrected by its answers and its metrics page")
	m.Left([]*endpoint.Endpoint{ep})
	m.SetSizing(Sizing{Blocks: 10}, nil)
	f(knowledge.Approximate, alone+", limited to the configured cache size because the engine does not report one; not confirmed by answers or metrics yet")
}
