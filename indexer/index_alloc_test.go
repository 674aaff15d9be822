//go:build !race

package indexer

import "testing"

// Without the race detector, under which sync.Pool drops items at random.
func TestMatchAndApplyDoNotAllocate(t *testing.T) {
	h := NewHasher(Seed{1})
	x, root := New(Options{Hasher: h}), h.Root(Scope{Model: "m"})
	text, d := storedChain(h, root, 1, 100, 64)
	var eps []EndpointID
	for ep := range EndpointID(40) {
		x.Apply(Source{Endpoint: ep}, &d)
		eps = append(eps, ep)
	}
	dst := make([]Run, len(eps))
	q := Query{Root: root, Bytes: text}
	if n := testing.AllocsPerRun(100, func() { x.Match(q, eps, dst) }); n != 0 {
		t.Errorf("Match allocates %v times", n)
	}
	rm := Delta{Ops: []Op{{Kind: OpRemove, N: 1}}, Hashes: []EngineHash{d.Blocks[99].Hash}}
	add := Delta{Ops: []Op{{Kind: OpStore, From: d.Blocks[98].Key, Parent: d.Blocks[98].Hash, N: 1}}, Blocks: d.Blocks[99:]}
	if n := testing.AllocsPerRun(100, func() { x.Apply(Source{}, &rm); x.Apply(Source{}, &add) }); n != 0 {
		t.Errorf("Apply allocates %v times", n)
	}
	if dst[7].Blocks != 100 || dst[7].Total() != 1600 {
		t.Errorf("got %+v", dst[7])
	}
}
