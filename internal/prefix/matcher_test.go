package prefix

import (
	"bytes"
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

// A failed request removes its own record only; records of other requests stay.
func TestFailedRequestKeepsWhatWasThere(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	approx := approx.New(approx.Options{Hasher: h})
	m := New(Options{Index: indexer.New(indexer.Options{Hasher: h}), Approx: approx})
	ep := &endpoint.Endpoint{ID: 3}
	shared := bytes.Repeat([]byte("0123456789abcdef"), 256) // 4 KiB: 16 chunks
	ask := func(text []byte) *request.Request {
		r := &request.Request{InputTokens: len(text) / 4, Chunks: block.Query{Root: 1, Bytes: text}}
		r.ChunkKeys = approx.Keys(r.Chunks, nil)
		return r
	}
	first := ask(shared)
	approx.Record(ep.ID, first.ChunkKeys, time.Now().UnixNano())
	second := ask(append(bytes.Clone(shared), bytes.Repeat([]byte("x"), 4096)...))
	held := func() int32 {
		dst := make([]block.Run, 1)
		approx.Match(second.ChunkKeys, []block.EndpointID{ep.ID}, nil, dst)
		return dst[0].Blocks
	}
	var before cycle.PrefixMatch
	before.Run.Tokens[block.TierGPU] = int32(first.InputTokens)
	for _, o := range []request.Outcome{{Status: 503}, {Status: 400}, {Status: 422, Complete: true}, {}} {
		approx.Record(ep.ID, second.ChunkKeys, time.Now().UnixNano())
		if held() != 32 {
			t.Fatalf("recorded %d chunks", held())
		}
		m.Finished(second, ep, before, o)
		if held() != 16 {
			t.Errorf("status %d: %d chunks are left, want the 16 that were there before", o.Status, held())
		}
	}
}

// A guess from sent prompts counts whole blocks without the last token. If the events include the
// prompt's last whole block, the guess adds nothing.
func TestGuessKnowsBlocks(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	sent, index := approx.New(approx.Options{Hasher: h}), indexer.New(indexer.Options{Hasher: h})
	now := time.Now()
	m := New(Options{
		Index: index, Approx: sent, Now: func() time.Time { return now }, Speculate: time.Minute,
		Wait: func(*endpoint.Endpoint, time.Time) time.Duration { return 0 },
		Read: func(block.EndpointID) knowledge.State { return knowledge.Exact },
	})
	text := bytes.Repeat([]byte("0123456789abcdef"), 64) // 1,024 bytes, which are 250 tokens at the engine
	root := h.Root(block.Scope{Model: "m"})
	ask := func(tokens int) *request.Request {
		r := &request.Request{InputTokens: tokens, PromptBytes: len(text), Chunks: block.Query{Root: 1, Bytes: text}, Exact: []block.Query{{Root: root, Bytes: text}}}
		r.ChunkKeys = sent.Keys(r.Chunks, nil)
		return r
	}
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set(fleetOf(1))
	eps := pool.Snapshot().Endpoints
	eps[0].SetGauges(endpoint.Gauges{At: now, Engine: endpoint.EngineVLLM, BlockSize: 16})
	sent.Record(eps[0].ID, ask(250).ChunkKeys, now.UnixNano())
	total := func(tokens int) int32 {
		held := make([]cycle.PrefixMatch, 1)
		m.Match(t.Context(), ask(tokens), eps, held)
		return held[0].Run.Total()
	}
	for _, c := range [][2]int{{250, 240}, {256, 240}, {257, 256}, {16, 0}} {
		if got := total(c[0]); got != int32(c[1]) {
			t.Errorf("before any report: %d of %d tokens, want %d", got, c[0], c[1])
		}
	}
	d := block.Delta{Ops: []block.Op{{Kind: block.OpStore, Root: true, From: root, N: 15}}}
	key := root
	for i := range 15 { // 16 tokens each
		key = h.Child(key, text[i*65:(i+1)*65])
		d.Blocks = append(d.Blocks, block.StoredBlock{Hash: block.EngineHash(i + 1), Key: key, Bytes: 65, Tokens: 16})
	}
	index.Apply(block.Source{Endpoint: eps[0].ID}, &d)
	for _, estimate := range []int{245, 250, 257, 300, 1000} {
		if got := total(estimate); got != 240 {
			t.Errorf("the events tell of 240 tokens: %d of an estimated %d", got, estimate)
		}
	}
	text = text[:15*65] // its last token ends its last block, which is recomputed
	for _, estimate := range []int{230, 240, 300} {
		if got := total(estimate); got != 224 {
			t.Errorf("all 240 tokens of a prompt are held: %d of an estimated %d, want 224", got, estimate)
		}
	}
}

// Match returns the precise index's run of every endpoint, and counts it only if the endpoint's
// state allows it.
func TestMatchCountsByState(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	index := indexer.New(indexer.Options{Hasher: h})
	m := New(Options{
		Index: index, Approx: approx.New(approx.Options{Hasher: h}),
		Read: func(ep block.EndpointID) knowledge.State {
			return []knowledge.State{knowledge.Approximate, knowledge.CatchingUp, knowledge.Exact, knowledge.Unknown}[ep]
		},
	})
	root, text := h.Root(block.Scope{Model: "m"}), bytes.Repeat([]byte("0123456789abcdef"), 8)
	var eps []*endpoint.Endpoint
	for ep := range block.EndpointID(4) {
		eps = append(eps, &endpoint.Endpoint{ID: ep})
		d := block.Delta{Ops: []block.Op{{Kind: block.OpStore, Root: true, From: root, N: uint32(ep) + 1}}}
		key := root
		for i := range int(ep) + 1 {
			key = h.Child(key, text[i*16:(i+1)*16])
			d.Blocks = append(d.Blocks, block.StoredBlock{Hash: block.EngineHash(i + 1), Key: key, Bytes: 16, Tokens: 4})
		}
		index.Apply(block.Source{Endpoint: ep}, &d)
	}
	r := &request.Request{InputTokens: 32, Exact: []block.Query{{Root: root, Bytes: text}}}
	for range 2 { // a request may be matched again
		held := make([]cycle.PrefixMatch, len(eps))
		m.Match(t.Context(), r, eps, held)
		for ep, want := range []int32{4, 8, 12, 16} {
			if h := held[ep]; h.Precise != want || h.Run.Total() != want || h.Approximate != -1 || !h.Looked {
				t.Errorf("endpoint %d: %+v, want %d tokens", ep, h, want)
			}
		}
	}
	for ep, want := range []bool{false, false, true, false} {
		if got := m.IndexAccepted(block.EndpointID(ep)); got != want {
			t.Errorf("endpoint %d believed: %v", ep, got)
		}
	}
}
