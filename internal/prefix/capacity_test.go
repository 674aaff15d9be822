package prefix

import (
	"bytes"
	"math"
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

func TestCapacityBytes(t *testing.T) {
	f := func(blocks, tokens, want int) {
		t.Helper()
		if got := capacityBytes(blocks, tokens); got != want {
			t.Errorf("%d blocks of %d tokens: %d bytes, want %d", blocks, tokens, got, want)
		}
	}
	f(31250, 16, 2_000_000)
	f(1<<20, 64, maxApproxBytes)
	f(math.MaxInt, math.MaxInt, maxApproxBytes)
}

// An offloading engine has more cached blocks than fit on its GPU. The number of remembered blocks
// grows with the hits that its answers report, up to a limit, and shrinks when they report fewer.
func TestOffloadingEnginesAreRememberedLonger(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	sent := approx.New(approx.Options{Hasher: h})
	now := time.Unix(1_800_000_000, 0)
	m := New(Options{
		Index: indexer.New(indexer.Options{Hasher: h}), Approx: sent, Now: func() time.Time { return now },
		Read: func(block.EndpointID) knowledge.State { return knowledge.Approximate },
	})
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set(fleetOf(1))
	eps := pool.Snapshot().Endpoints
	eps[0].SetGauges(endpoint.Gauges{BlockSize: 16})
	m.Sized(eps[0], 512, 16) // 8,192 tokens: two of the prompts
	var asks []*request.Request
	for i := range 6 {
		text := bytes.Repeat([]byte{byte('a' + i)}, 16<<10)
		r := &request.Request{InputTokens: 4096, PromptBytes: len(text), Chunks: block.Query{Root: 1, Bytes: text}}
		r.ChunkKeys = sent.Keys(r.Chunks, nil)
		asks = append(asks, r)
	}
	rounds := func(n, cached int) (predicted int) {
		held := make([]cycle.PrefixMatch, 1)
		for range n {
			predicted = 0
			for _, r := range asks {
				m.Match(t.Context(), r, eps, held)
				predicted += int(held[0].Run.Total())
				m.Chosen(r, eps[0])
				now = now.Add(time.Second)
				m.Finished(r, eps[0], held[0], request.Outcome{Status: 200, Complete: true, Usage: request.Usage{Seen: true, PromptTokens: 4096, CachedTokens: cached, CachedSeen: true}})
			}
		}
		return predicted
	}
	if got := rounds(2, 0); got > 2*4096 {
		t.Errorf("%d tokens predicted of what the GPU holds, want at most 8192", got)
	}
	if got := rounds(12, 4080); got < 6*4000 {
		t.Errorf("%d tokens predicted where answers report all of 24480", got)
	}
	if c, _ := m.sizes.Load(eps[0].ID); c.(*cacheSize).bytes() > offloadMost*capacityBytes(512, 16) {
		t.Errorf("%d bytes are remembered, want at most %d times the GPU's", c.(*cacheSize).bytes(), offloadMost)
	}
}
