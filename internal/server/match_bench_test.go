package server

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// BenchmarkRenderAndMatch is what a chat costs from its body to the runs of
// eight endpoints that all hold it: parsing, rendering by the Qwen 3 template,
// chunk keys, the walk, and the check of the last blocks.
func BenchmarkRenderAndMatch(b *testing.B) {
	for _, size := range []int{1 << 10, 40 << 10, 400 << 10} {
		b.Run(fmt.Sprintf("body=%dKB", size>>10), func(b *testing.B) { benchRenderAndMatch(b, size) })
	}
}

func benchRenderAndMatch(b *testing.B, size int) {
	h := indexer.NewHasher(seedOf("bench"))
	index, approx := indexer.New(indexer.Options{Hasher: h}), indexer.NewApprox(indexer.ApproxOptions{Hasher: h})
	ms, err := openModels([]ModelOptions{{Name: "m", Path: parts.Model(b, "qwen3")}}, h, approx, prompt.ModelsOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer ms.all.Close()
	for !ms.ready() {
		time.Sleep(time.Millisecond)
	}
	m := newMatcher()
	m.index, m.approx, m.now, m.model = index, approx, time.Now, ms.model
	m.exact = func(indexer.EndpointID) bool { return true }
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
	ms.fill(r)
	storeAll(b, index, h, ms.model("m"), r.Exact[0], eps)
	ms.release(r)
	runs := make([]indexer.Run, len(eps))
	b.ReportAllocs()
	for b.Loop() {
		if err := request.Parse(r); err != nil {
			b.Fatal(err)
		}
		ms.fill(r)
		clear(runs)
		m.Match(r, eps, runs)
		ms.release(r)
	}
	if runs[7].Total() < int32(size/16) {
		b.Fatalf("matched %+v", runs[7])
	}
}

// storeAll enters the blocks of a prompt for every endpoint, as its events would.
func storeAll(b *testing.B, index *indexer.Index, h indexer.Hasher, p *prompt.Model, q indexer.Query, eps []*endpoint.Endpoint) {
	b.Helper()
	ids := p.EncodeRendered(nil, q.Bytes)
	for _, ep := range eps {
		src := indexer.Source{Endpoint: ep.ID}
		tr := events.NewTranslator(events.TranslatorOptions{Source: src, Index: index, Hasher: h, Model: "m", Vocabulary: p})
		n := len(ids) / truthBlock
		e := events.Event{Kind: events.BlockStored, Tokens: ids[:n*truthBlock], BlockSize: truthBlock}
		for i := range n {
			e.Hashes = append(e.Hashes, indexer.EngineHash(i+1))
		}
		var d indexer.Delta
		tr.Translate(&events.Batch{Events: []events.Event{e}}, &d)
		index.Apply(src, &d)
	}
}
