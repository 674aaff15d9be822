package prefix

import (
	"bytes"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// A request that fails takes back its own record, not what others left there.
func TestFailedRequestKeepsWhatWasThere(t *testing.T) {
	h := indexer.NewHasher(indexer.Seed{1})
	approx := approx.New(approx.Options{Hasher: h})
	m := New(Options{Index: indexer.New(indexer.Options{Hasher: h}), Approx: approx})
	ep := &endpoint.Endpoint{ID: 3}
	shared := bytes.Repeat([]byte("0123456789abcdef"), 256) // 4 KiB: 16 chunks
	ask := func(text []byte) *request.Request {
		r := &request.Request{InputTokens: len(text) / 4, Chunks: indexer.Query{Root: 1, Bytes: text}}
		r.ChunkKeys = approx.Keys(r.Chunks, nil)
		return r
	}
	first := ask(shared)
	approx.Record(ep.ID, first.ChunkKeys, time.Now().UnixNano())
	second := ask(append(bytes.Clone(shared), bytes.Repeat([]byte("x"), 4096)...))
	held := func() int32 {
		dst := make([]indexer.Run, 1)
		approx.Match(second.ChunkKeys, []indexer.EndpointID{ep.ID}, nil, dst)
		return dst[0].Blocks
	}
	var before picker.Held
	before.Run.Tokens[indexer.TierGPU] = int32(first.InputTokens)
	for _, o := range []picker.Outcome{{Status: 503}, {Status: 400}, {Status: 422, Complete: true}, {}} {
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

// Match says what the precise index sees of every endpoint, whether it is
// believed or not, and counts what it sees where it is believed.
func TestMatchTellsBelievedFromSeen(t *testing.T) {
	h := indexer.NewHasher(indexer.Seed{1})
	index := indexer.New(indexer.Options{Hasher: h})
	m := New(Options{
		Index: index, Approx: approx.New(approx.Options{Hasher: h}),
		Read: func(ep indexer.EndpointID) knowledge.State {
			return []knowledge.State{knowledge.Approximate, knowledge.CatchingUp, knowledge.Exact, knowledge.Unknown}[ep]
		},
	})
	root, text := h.Root(indexer.Scope{Model: "m"}), bytes.Repeat([]byte("0123456789abcdef"), 8)
	var eps []*endpoint.Endpoint
	for ep := range indexer.EndpointID(4) {
		eps = append(eps, &endpoint.Endpoint{ID: ep})
		d := indexer.Delta{Ops: []indexer.Op{{Kind: indexer.OpStore, Root: true, From: root, N: uint32(ep) + 1}}}
		key := root
		for i := range int(ep) + 1 {
			key = h.Child(key, text[i*16:(i+1)*16])
			d.Blocks = append(d.Blocks, indexer.StoredBlock{Hash: indexer.EngineHash(i + 1), Key: key, Bytes: 16, Tokens: 4})
		}
		index.Apply(indexer.Source{Endpoint: ep}, &d)
	}
	r := &request.Request{InputTokens: 32, Exact: []indexer.Query{{Root: root, Bytes: text}}}
	for range 2 { // a request may be matched again
		held := make([]picker.Held, len(eps))
		m.Match(t.Context(), r, eps, held)
		for ep, want := range []int32{4, 8, 12, 16} {
			if h := held[ep]; h.Precise != want || h.Run.Total() != want || h.Approximate != -1 || !h.Looked {
				t.Errorf("endpoint %d: %+v, want %d tokens", ep, h, want)
			}
		}
	}
	for ep, want := range []bool{false, false, true, false} {
		if got := m.Believed(indexer.EndpointID(ep)); got != want {
			t.Errorf("endpoint %d believed: %v", ep, got)
		}
	}
}
