package server

import (
	"bytes"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/picker"
)

// A request that fails takes back its own record, not what others left there.
func TestFailedRequestKeepsWhatWasThere(t *testing.T) {
	h := indexer.NewHasher(indexer.Seed{1})
	m := newMatcher()
	m.approx, m.now = indexer.NewApprox(indexer.ApproxOptions{Hasher: h}), time.Now
	ep := &picker.Endpoint{ID: 3}
	shared := bytes.Repeat([]byte("0123456789abcdef"), 256) // 4 KiB: 16 chunks
	ask := func(text []byte) *picker.Request {
		r := &picker.Request{InputTokens: len(text) / 4, Chunks: indexer.Query{Root: 1, Bytes: text}}
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
