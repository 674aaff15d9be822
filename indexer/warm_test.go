package indexer

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// TestParentsLaw applies the same deltas to two indexes. One gets calls of Parents first: for these
// parents or for others, in this order or another, with removals in between. Parents changes
// nothing but the time that Apply takes.
func TestParentsLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := block.NewHasher(block.Seed{3})
		asked, plain := New(Options{Hasher: h}), New(Options{Hasher: h})
		keys := map[block.EngineHash]block.Key{}
		root := h.Root(block.Scope{Model: "m"})
		names := rapid.Uint64Range(1, 12)
		for range rapid.IntRange(1, 20).Draw(t, "deltas") {
			d := drawSteps(t, h, root, keys)
			var parents []block.EngineHash
			for range rapid.IntRange(0, 6).Draw(t, "parents") {
				parents = append(parents, block.EngineHash(names.Draw(t, "parent")))
			}
			for i := range d.Ops {
				if op := &d.Ops[i]; op.Kind == block.OpStore && !op.Root && rapid.IntRange(0, 4).Draw(t, "ask") > 0 {
					parents = append(parents, op.Parent)
				}
			}
			got := make([]block.Key, len(parents))
			asked.Parents(block.Source{}, parents, nil, got)
			for i, p := range parents {
				if want, _ := plain.Lookup(block.Source{}, p); got[i] != want {
					t.Fatalf("parent %d: key %x, want %x", p, got[i], want)
				}
			}
			if rapid.IntRange(0, 9).Draw(t, "reset") == 0 {
				asked.Reset(block.Source{})
				plain.Reset(block.Source{})
			}
			if a, b := asked.Apply(block.Source{}, d), plain.Apply(block.Source{}, d); a != b {
				t.Fatalf("%+v, want %+v", a, b)
			}
			an, ax := asked.Digest(block.Source{})
			if bn, bx := plain.Digest(block.Source{}); an != bn || ax != bx {
				t.Fatalf("digest (%d, %x), want (%d, %x)", an, ax, bn, bx)
			}
		}
	})
}

// drawSteps stores and removes blocks with a few names, usually below the key that their parent had
// last.
func drawSteps(t *rapid.T, h block.Hasher, root block.Key, keys map[block.EngineHash]block.Key) *block.Delta {
	d, name := &block.Delta{}, rapid.Uint64Range(1, 12)
	for range rapid.IntRange(1, 6).Draw(t, "ops") {
		if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
			d.Ops = append(d.Ops, block.Op{Kind: block.OpRemove, First: uint32(len(d.Hashes)), N: 1})
			d.Hashes = append(d.Hashes, block.EngineHash(name.Draw(t, "removed")))
			continue
		}
		op := block.Op{Kind: block.OpStore, Root: true, From: root, First: uint32(len(d.Blocks)), N: 1}
		if p := block.EngineHash(name.Draw(t, "below")); keys[p] != 0 {
			op.Root, op.From, op.Parent = false, keys[p], p
		}
		b := []byte{byte(name.Draw(t, "text") % 3)}
		stored := block.StoredBlock{Hash: block.EngineHash(name.Draw(t, "stored")), Key: h.Child(op.From, b), Bytes: 1, Tokens: 1}
		keys[stored.Hash] = stored.Key
		d.Ops, d.Blocks = append(d.Ops, op), append(d.Blocks, stored)
	}
	return d
}

// TestRemovalsTogether removes more blocks in one delta than a batch has, some twice, in one
// operation or in one for each. Nothing is left afterwards.
func TestRemovalsTogether(t *testing.T) {
	h := block.NewHasher(block.Seed{5})
	root := h.Root(block.Scope{Model: "m"})
	const blocks = 2*window + 3
	for _, each := range []bool{false, true} {
		x := New(Options{Hasher: h})
		_, d := storedChain(h, root, 1, blocks, 16)
		x.Apply(block.Source{}, &d)
		rm := removal(&d)
		again := rm.Hashes[window-2 : window+2]
		rm.Hashes = append(rm.Hashes, again...)
		if each {
			for range again {
				rm.Ops = append(rm.Ops, block.Op{Kind: block.OpRemove, First: uint32(len(rm.Ops)), N: 1})
			}
		} else {
			rm.Ops = []block.Op{{Kind: block.OpRemove, N: uint32(len(rm.Hashes))}}
		}
		st := x.Apply(block.Source{}, rm)
		if st.Removed != blocks || st.UnknownRemove != len(again) {
			t.Errorf("%+v", st)
		}
		if s := x.Stats(); s.Nodes != 0 || s.Entries != 0 || s.Sets != 0 {
			t.Errorf("something is left: %+v", s)
		}
	}
}
