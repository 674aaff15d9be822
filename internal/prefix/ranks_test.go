package prefix

import (
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestRanksAreExpected: for an engine that balances its ranks itself, the expected hit is the
// average over the ranks. An answer from a rank with less than the best one is no error. If no rank
// has the expected blocks, the prediction counts as wrong.
func TestRanksAreExpected(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	e := &engines{h: h, index: indexer.New(indexer.Options{Hasher: h}), blocks: 1 << 20}
	m := New(Options{Index: e.index, Approx: approx.New(approx.Options{Hasher: h}), Now: func() time.Time { return time.Unix(1_800_000_000, 0) }})
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set(fleetOf(1))
	eps := pool.Snapshot().Endpoints
	eps[0].SetGauges(endpoint.Gauges{At: time.Unix(1_800_000_000, 0), Engine: endpoint.EngineVLLM, BlockSize: 16})
	root := h.Root(block.Scope{Space: block.SpaceText, Model: "m"})
	store := func(rank uint16, text string) {
		var d block.Delta
		for k, key := range e.chain(text) {
			op := block.Op{Kind: block.OpStore, Root: k == 0, From: root, N: 1, First: uint32(k)}
			if k > 0 {
				op.From, op.Parent = d.Blocks[k-1].Key, d.Blocks[k-1].Hash
			}
			d.Ops = append(d.Ops, op)
			d.Blocks = append(d.Blocks, block.StoredBlock{Hash: block.EngineHash(key), Key: key, Bytes: bytesOfBlock, Tokens: 16})
		}
		e.index.Apply(block.Source{Endpoint: eps[0].ID, Rank: rank}, &d)
	}
	text := strings.Repeat("0123456789abcdef", 400) // 100 blocks
	store(0, text[:80*bytesOfBlock])
	store(1, text[:20*bytesOfBlock])
	r := &request.Request{Kind: request.KindChat, InputTokens: len(text) / 4, Target: "m", Exact: []block.Query{{Root: root, Bytes: []byte(text)}}}
	ended := func(cached int) cycle.PrefixMatch {
		held := make([]cycle.PrefixMatch, 1)
		m.Match(t.Context(), r, eps, held)
		m.Finished(r, eps[0], held[0], request.Outcome{Status: 200, Complete: true, Usage: request.Usage{
			Seen: true, CachedSeen: true, PromptTokens: len(text) / 4, CachedTokens: cached,
		}})
		return held[0]
	}
	for i := range 24 {
		if h := ended([]int{80 * 16, 20 * 16}[i%2]); h.Run.Total() != 50*16 || h.Precise != 80*16 {
			t.Fatalf("%d tokens expected, %d at the best", h.Run.Total(), h.Precise)
		}
	}
	if v := m.Verdicts(eps[0])[0]; v.State != knowledge.Exact.String() || v.Over+v.Under > 0 {
		t.Errorf("%+v", v)
	}
	for range 24 {
		ended(0)
	}
	if v := m.Verdicts(eps[0])[0]; v.Over == 0 || v.Reason == "" {
		t.Errorf("no block is there, and no verdict reports it: %+v", v)
	}
}
