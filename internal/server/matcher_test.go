package server

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// A request that fails takes back its own record, not what others left there.
func TestFailedRequestKeepsWhatWasThere(t *testing.T) {
	h := indexer.NewHasher(indexer.Seed{1})
	m := newMatcher()
	m.approx, m.now = indexer.NewApprox(indexer.ApproxOptions{Hasher: h}), time.Now
	ep := &endpoint.Endpoint{ID: 3}
	shared := bytes.Repeat([]byte("0123456789abcdef"), 256) // 4 KiB: 16 chunks
	ask := func(text []byte) *request.Request {
		r := &request.Request{InputTokens: len(text) / 4, Chunks: indexer.Query{Root: 1, Bytes: text}}
		r.ChunkKeys = m.approx.Keys(r.Chunks, nil)
		return r
	}
	first := ask(shared)
	m.approx.Record(ep.ID, first.ChunkKeys, time.Now().UnixNano())
	second := ask(append(bytes.Clone(shared), bytes.Repeat([]byte("x"), 4096)...))
	held := func() int32 {
		dst := make([]indexer.Run, 1)
		m.approx.Match(second.ChunkKeys, []indexer.EndpointID{ep.ID}, nil, dst)
		return dst[0].Blocks
	}
	m.approx.Record(ep.ID, second.ChunkKeys, time.Now().UnixNano())
	if held() != 32 {
		t.Fatalf("recorded %d chunks", held())
	}
	predicted := indexer.Run{Tokens: [indexer.NumTiers]int32{int32(first.InputTokens)}}
	m.Finished(second, ep, predicted, picker.Outcome{Status: 503})
	if held() != 16 {
		t.Errorf("%d chunks are left, want the 16 that were there before", held())
	}
}

// What the index says of endpoints that are not believed is noted by the match
// itself, for the audit of the one that is chosen.
func TestDoubtedEndpointsAreMatchedOnce(t *testing.T) {
	h := indexer.NewHasher(indexer.Seed{1})
	m := newMatcher()
	m.index, m.approx, m.now = indexer.New(indexer.Options{Hasher: h}), indexer.NewApprox(indexer.ApproxOptions{Hasher: h}), time.Now
	m.model = func(string) *prompt.Model { return nil }
	m.exact = func(ep indexer.EndpointID) bool { return ep == 2 }
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
		m.index.Apply(indexer.Source{Endpoint: ep}, &d)
	}
	r := &request.Request{InputTokens: 32, Exact: []indexer.Query{{Root: root, Bytes: text}}}
	for range 2 { // a request may be matched again
		runs := make([]indexer.Run, len(eps))
		m.Match(r, eps, runs)
		want := []request.DoubtedRun{{Endpoint: 0, Tokens: 4}, {Endpoint: 1, Tokens: 8}, {Endpoint: 3, Tokens: 16}}
		if diff := cmp.Diff(want, r.Doubted); diff != "" || runs[2].Total() != 12 {
			t.Fatalf("%s, runs %+v", diff, runs)
		}
	}
	m.index.Reset(indexer.Source{Endpoint: 3})
	for ep, want := range []int{4, 8, -1, 16} {
		if m.Chosen(r, eps[ep]); r.Precise != want {
			t.Errorf("endpoint %d: %d tokens, want %d", ep, r.Precise, want)
		}
	}
	if m.Chosen(r, &endpoint.Endpoint{ID: 9}); r.Precise != -1 {
		t.Errorf("an endpoint that was no candidate: %d", r.Precise)
	}
}
