//go:build !race

package indexer

import (
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// Without the race detector, under which sync.Pool drops items at random.
func TestMatchAndApplyDoNotAllocate(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	x, root := New(Options{Hasher: h}), h.Root(block.Scope{Model: "m"})
	text, d := storedChain(h, root, 1, 100, 64)
	var eps []block.EndpointID
	for ep := range block.EndpointID(40) {
		x.Apply(block.Source{Endpoint: ep}, &d)
		eps = append(eps, ep)
	}
	dst := make([]block.Run, len(eps))
	q := block.Query{Root: root, Bytes: text}
	if n := testing.AllocsPerRun(100, func() { x.Match(q, eps, dst) }); n != 0 {
		t.Errorf("Match allocates %v times", n)
	}
	rm := block.Delta{Ops: []block.Op{{Kind: block.OpRemove, N: 1}}, Hashes: []block.EngineHash{d.Blocks[99].Hash}}
	add := block.Delta{Ops: []block.Op{{Kind: block.OpStore, From: d.Blocks[98].Key, Parent: d.Blocks[98].Hash, N: 1}}, Blocks: d.Blocks[99:]}
	if n := testing.AllocsPerRun(100, func() { x.Apply(block.Source{}, &rm); x.Apply(block.Source{}, &add) }); n != 0 {
		t.Errorf("Apply allocates %v times", n)
	}
	if dst[7].Blocks != 100 || dst[7].Total() != 1600 {
		t.Errorf("got %+v", dst[7])
	}
}

// TestRanks: for an endpoint with several ranks, the best rank's run is returned, and the expected
// difference for any rank.
func TestRanks(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	x := New(Options{Hasher: h})
	root := h.Root(block.Scope{Model: "m"})
	store := func(s block.Source, text string) {
		d := block.Delta{Ops: []block.Op{{Kind: block.OpStore, Root: true, From: root, N: uint32(len(text))}}}
		key := root
		for i := range len(text) {
			key = h.Child(key, []byte(text[i:i+1]))
			d.Blocks = append(d.Blocks, block.StoredBlock{Hash: block.EngineHash(key), Key: key, Bytes: 1, Tokens: 16})
		}
		x.Apply(s, &d)
	}
	store(block.Source{Endpoint: 1, Rank: 0}, "abcd")
	store(block.Source{Endpoint: 1, Rank: 1}, "ab")
	store(block.Source{Endpoint: 1, Rank: 2}, "z")
	store(block.Source{Endpoint: 2, Rank: 5}, "abc") // one rank of an engine as a separate endpoint
	eps, runs := []block.EndpointID{2, 1, 3}, make([]block.Run, 3)
	q := block.Query{Root: root, Bytes: []byte("abcdef")}
	x.Match(q, eps, runs)
	if r := runs[1]; r.Total() != 64 || r.Missing != 64-(64+32)/3 || r.Worst != 64 {
		t.Errorf("three ranks: %+v", r)
	}
	if r := runs[0]; r.Total() != 48 || r.Missing != 0 {
		t.Errorf("one rank: %+v", r)
	}
	if runs[2] != (block.Run{}) {
		t.Errorf("without holders: %+v", runs[2])
	}
	if n := testing.AllocsPerRun(100, func() { x.Match(q, eps, runs) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	x.Reset(block.Source{Endpoint: 1, Rank: 1})
	x.Reset(block.Source{Endpoint: 1, Rank: 2})
	if x.Match(q, eps, runs); runs[1].Missing != 0 {
		t.Errorf("the only rank that is left: %+v", runs[1])
	}
}

// A source with rules causes no allocation in a walk.
func TestRulesDoNotAllocate(t *testing.T) {
	x := New(Options{Hasher: block.NewHasher(block.Seed{1})})
	src, root := block.Source{Endpoint: 2}, x.o.Hasher.Root(block.Scope{Model: "m"})
	text := "abababababababababababababababababababab"
	x.Apply(src, &block.Delta{
		Ops: []block.Op{{Kind: block.OpMove, Group: block.GroupRules, N: 1}}, Hashes: []block.EngineHash{block.Rule{Group: 1, Kind: block.RuleState, Size: 4}.Word()},
	})
	storeText(x, src, root, text, 0)
	storeText(x, src, root, text[:20], 1)
	runs, eps, q := make([]block.Run, 1), []block.EndpointID{2}, block.Query{Root: root, Bytes: []byte(text)}
	if n := testing.AllocsPerRun(100, func() { x.Match(q, eps, runs) }); n > 0 || runs[0].Blocks != 5 {
		t.Errorf("%v allocations, %+v", n, runs[0])
	}
}
