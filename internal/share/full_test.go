package share

import (
	"testing"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/share/plan"
)

// An endpoint whose blocks exceeded the limit is not exact until its cache is cleared, even if its
// stream is. The reason names the limit.
func TestFullIndexIsNotExact(t *testing.T) {
	h, at := block.NewHasher(block.Seed{1}), block.Source{Endpoint: 0}
	x := lookAt(1).index
	x.o.Index = indexer.New(indexer.Options{Hasher: h, MaxSourceBlocks: 1})
	x.events = events.Open(events.Options{Index: x.o.Index, Hasher: h})
	t.Cleanup(func() { _ = x.events.Close() })
	s := (*x.byEndpoint.Load())[0][0]
	s.shown.mode.Store(uint32(plan.Shared))
	s.shown.state.Store(uint32(knowledge.Exact))
	s.shown.full.Store(true)
	said := func(want knowledge.State, complete bool, reason string) {
		t.Helper()
		if k := x.Knowledge(0); k.State != want || k.Complete != complete || x.State(0) != want || x.Reason(0) != reason {
			t.Errorf("state %v (%v), complete %v, reason %q; want %v, %q", k.State, x.State(0), k.Complete, x.Reason(0), want, reason)
		}
	}
	store := func(texts ...string) {
		root := h.Root(block.Scope{Space: block.SpaceText, Model: "m"})
		for i, text := range texts {
			x.o.Index.Apply(at, &block.Delta{
				Ops:    []block.Op{{Kind: block.OpStore, Root: true, From: root, N: 1}},
				Blocks: []block.StoredBlock{{Hash: block.EngineHash(i + 1), Key: h.Child(root, []byte(text)), Bytes: uint32(len(text)), Tokens: 16}},
			})
		}
	}
	said(knowledge.Exact, true, "")
	store("one block", "another one")
	said(knowledge.Approximate, false, "it exceeds the limit of 1 blocks per endpoint, or all endpoints exceed the total limit")
	x.o.Index.Apply(at, &block.Delta{Ops: []block.Op{{Kind: block.OpClear}}})
	said(knowledge.Exact, true, "")
}
