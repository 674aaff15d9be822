package prefix

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/events/translate"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// BenchmarkRenderAndMatch measures a chat from its body to the runs of eight endpoints that have
// the whole prompt. It includes parsing, rendering with the Qwen 3 template, chunk keys, the walk,
// and the check of the last blocks.
func BenchmarkRenderAndMatch(b *testing.B) {
	for _, size := range []int{1 << 10, 40 << 10, 400 << 10} {
		b.Run(fmt.Sprintf("body=%dKB", size>>10), func(b *testing.B) { benchRenderAndMatch(b, size) })
	}
}

func benchRenderAndMatch(b *testing.B, size int) {
	h := block.NewHasher(block.Seed{1})
	index, approx := indexer.New(indexer.Options{Hasher: h}), approx.New(approx.Options{Hasher: h})
	ms, err := OpenModels([]ModelOptions{{Name: "m", Path: parts.Model(b, "qwen3")}}, ModelsOptions{Hasher: h, Approx: approx})
	if err != nil {
		b.Fatal(err)
	}
	defer ms.Close()
	if err := ms.Registry().Wait(b.Context()); err != nil {
		b.Fatal(err)
	}
	m := New(Options{Index: index, Approx: approx, Models: ms})
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	var specs []endpoint.Spec
	for i := range 8 {
		specs = append(specs, endpoint.Spec{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80)})
	}
	pool.Set(specs)
	eps := pool.Snapshot().Endpoints

	words := strings.Repeat("The prefix cache of an engine holds blocks of sixteen tokens. ", size/62)
	body, err := json.Marshal(map[string]any{"model": "m", "messages": []any{map[string]string{"role": "user", "content": words}}})
	if err != nil {
		b.Fatal(err)
	}
	r := &request.Request{Path: "/v1/chat/completions", Headers: noHeaders{}, Body: body}
	if err := request.Parse(r); err != nil {
		b.Fatal(err)
	}
	ms.Fill(b.Context(), r)
	storeAll(b, index, h, ms.Model("m"), r.Exact[0], eps)
	ms.Release(r)
	held := make([]cycle.PrefixMatch, len(eps))
	b.ReportAllocs()
	for b.Loop() {
		if err := request.Parse(r); err != nil {
			b.Fatal(err)
		}
		ms.Fill(b.Context(), r)
		clear(held)
		m.Match(b.Context(), r, eps, held)
		ms.Release(r)
	}
	if held[7].Run.Total() < int32(size/16) {
		b.Fatalf("matched %+v", held[7])
	}
}

// storeAll enters the blocks of a prompt for every endpoint, as its events would.
func storeAll(b *testing.B, index *indexer.Index, h block.Hasher, p *prompt.Model, q block.Query, eps []*endpoint.Endpoint) {
	b.Helper()
	ids := p.EncodeRendered(nil, q.Bytes)
	for _, ep := range eps {
		src := block.Source{Endpoint: ep.ID}
		tr := translate.New(translate.Options{Source: src, Index: index, Hasher: h, Model: "m", Vocabulary: p})
		n := len(ids) / truthBlock
		e := decode.Event{Kind: decode.BlockStored, Tokens: ids[:n*truthBlock], BlockSize: truthBlock}
		for i := range n {
			e.Hashes = append(e.Hashes, block.EngineHash(i+1))
		}
		var d block.Delta
		tr.Translate(&decode.Batch{Events: []decode.Event{e}}, &d)
		index.Apply(src, &d)
	}
}

// TestLargeTextsReuseBuffers checks that the prompt of a body of 400 KB is rendered into a buffer
// of an earlier request.
func TestLargeTextsReuseBuffers(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	ms, err := OpenModels([]ModelOptions{{Name: "m", Path: parts.Model(t, "qwen3")}}, ModelsOptions{Hasher: h, Approx: approx.New(approx.Options{Hasher: h})})
	if err != nil {
		t.Fatal(err)
	}
	defer ms.Close()
	if err := ms.Registry().Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	words := strings.Repeat("The prefix cache of an engine holds blocks of sixteen tokens. ", 400<<10/62)
	body, err := json.Marshal(map[string]any{"model": "m", "messages": []any{map[string]string{"role": "user", "content": words}}})
	if err != nil {
		t.Fatal(err)
	}
	r := &request.Request{Path: "/v1/chat/completions", Headers: noHeaders{}, Body: body}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it would empty the pool
	const n = 10
	var before, after runtime.MemStats
	for i := range n + 1 {
		if i == 1 {
			runtime.ReadMemStats(&before)
		}
		if err := request.Parse(r); err != nil {
			t.Fatal(err)
		}
		ms.Fill(t.Context(), r)
		if len(r.Exact) == 0 {
			t.Fatal("the prompt was not rendered")
		}
		ms.Release(r)
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > uint64(len(body)*5/4) {
		t.Errorf("a request of %d bytes allocates %d bytes, want about one copy of its messages", len(body), each)
	}
}

// BenchmarkMatchLargePool matches a prompt that three of many endpoints have, by the approximate index
// alone.
func BenchmarkMatchLargePool(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h := block.NewHasher(block.Seed{1})
			index, guesses := indexer.New(indexer.Options{Hasher: h}), approx.New(approx.Options{Hasher: h})
			m := New(Options{Index: index, Approx: guesses})
			pool := endpoint.NewPool(endpoint.PoolOptions{})
			var specs []endpoint.Spec
			for i := range n {
				specs = append(specs, endpoint.Spec{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)})
			}
			pool.Set(specs)
			eps := pool.Snapshot().Endpoints
			r := &request.Request{InputTokens: 250, PromptBytes: 1000, Chunks: block.Query{Bytes: make([]byte, 1000)}}
			for i := range block.Key(4) {
				r.ChunkKeys = append(r.ChunkKeys, 100+i)
			}
			for i := range 3 {
				guesses.Record(eps[i*n/3].ID, r.ChunkKeys, time.Now().UnixNano())
			}
			held := make([]cycle.PrefixMatch, n)
			b.ReportAllocs()
			for b.Loop() {
				clear(held)
				m.Match(b.Context(), r, eps, held)
			}
			if held[n/3].Run.Total() == 0 || held[n/3+1].Run.Total() != 0 {
				b.Fatalf("matched %+v and %+v", held[n/3], held[n/3+1])
			}
		})
	}
}
