package indexer

import (
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// If many sources are removed one after the other, the immediate release is as limited as for one
// source, because their owner may hold a lock that others wait for. Readers see none of the
// sources, and later writes release the rest.
func TestManySourcesGoAtOnce(t *testing.T) {
	const sources, chains, blocks = 100, 25, 100
	h := block.NewHasher(block.Seed{1})
	x := New(Options{Hasher: h})
	root := h.Root(block.Scope{Model: "m"})
	name := func(i int) block.Source { return block.Source{Endpoint: block.EndpointID(i)} }
	for i := range sources {
		for c := range chains {
			_, d := storedChain(h, root, uint64(1+i*chains+c), blocks, 8)
			x.Apply(name(i), &d)
		}
	}
	before := x.Stats()
	for i := range sources {
		x.Reset(name(i))
	}
	after := x.Stats()
	if released := before.Nodes - after.Nodes; released == 0 || released > 2*reclaimFirst || after.Entries != 0 || after.Sources != 0 {
		t.Errorf("%d of %d blocks are released, %d entries are left", released, before.Nodes, after.Entries)
	}
	held := len(x.dying)
	if x.Reclaim(); len(x.dying) >= held {
		t.Error("nothing is released without writes")
	}
	writes := 0
	for ; len(x.dying) > 0 && writes < 1000; writes++ {
		_, d := storedChain(h, root, 1, 2, 8)
		x.Apply(name(200), &d)
	}
	for range 4 { // for the epochs
		x.Reset(name(201))
	}
	if st := x.Stats(); len(x.dying) > 0 || st.Nodes != 3 {
		t.Errorf("after %d writes: %d go, %+v", writes, len(x.dying), st)
	}
}
