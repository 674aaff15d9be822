package wire

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// spotty fills a source with difficult content for snapshots: chains that another source stored
// first, branches, copies, two names and two tiers of one block, blocks that are not canonical, and
// holes in the middle.
func spotty(x *indexer.Index, h block.Hasher, name block.Source) (queries []block.Query) {
	root := h.Root(block.Scope{Model: "m"})
	for seed := range uint64(40) {
		text, d := storedChain(h, root, seed+1, 60, 32)
		queries = append(queries, block.Query{Root: root, Bytes: text})
		if seed%3 == 0 {
			x.Apply(block.Source{Endpoint: 99}, &d)
		}
		if seed%5 == 0 {
			d.Blocks[40].Flags = block.FlagNonCanonical
		}
		x.Apply(name, &d)
		d.Ops[0].Tier, d.Ops[0].Group, d.Ops[0].N = block.TierCPU, uint8(seed%2), 20
		x.Apply(name, &d)
		if seed%4 == 0 {
			x.Apply(name, &d)
			for i := range d.Blocks {
				d.Blocks[i].Hash += 1 << 50
			}
			x.Apply(name, &d)
		}
		_, below := storedChain(h, d.Blocks[30].Key, 1000+seed, 12, 32)
		below.Ops[0].Root, below.Ops[0].Parent = false, block.EngineHash((seed+1)<<20+30)
		x.Apply(name, &below)
		rm := block.Delta{Ops: []block.Op{{Kind: block.OpRemove, N: 2}}, Hashes: []block.EngineHash{block.EngineHash((seed+1)<<20 + 25), block.EngineHash((seed+1)<<20 + 30)}}
		x.Apply(name, &rm)
	}
	return queries
}

func restored(t *testing.T, h block.Hasher, name block.Source, pages [][]byte) *indexer.Index {
	t.Helper()
	y, d := indexer.New(indexer.Options{Hasher: h}), block.Delta{}
	blocks := 0
	for _, p := range pages {
		if err := DecodeDelta(p, &d); err != nil {
			t.Fatal(err)
		}
		blocks += len(d.Blocks)
	}
	stage := y.Stage(name, blocks)
	for _, p := range pages {
		if err := DecodeDelta(p, &d); err != nil {
			t.Fatal(err)
		}
		if st := stage.Apply(&d); st.UnknownParent+st.Refused > 0 {
			t.Fatalf("does not apply: %+v", st)
		}
	}
	stage.Commit()
	return y
}

// Pages stay within their size, and for any size they form the complete source.
func TestSnapshotPages(t *testing.T) {
	h, name := block.NewHasher(block.Seed{1}), block.Source{Endpoint: 3}
	x := indexer.New(indexer.Options{Hasher: h})
	queries := spotty(x, h, name)
	n, xor := x.Digest(name)
	for _, size := range []int{256, 1000, 10_000, 128 << 10} {
		pages, err := allPages(x, name, SnapshotLimits{Page: size, Total: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		total := 0
		for i, p := range pages {
			if total += len(p); len(p) > size {
				t.Errorf("page %d has %d bytes of %d", i, len(p), size)
			}
		}
		if size == 10_000 && len(pages) > total/(size*4/10)+1 {
			t.Errorf("%d bytes in %d pages", total, len(pages))
		}
		y := restored(t, h, name, pages)
		if yn, yxor := y.Digest(name); yn != n || yxor != xor {
			t.Fatalf("pages of %d bytes: digest %d %x, want %d %x", size, yn, yxor, n, xor)
		}
		got, want := make([]block.Run, 1), make([]block.Run, 1)
		for _, q := range queries {
			x.Match(q, []block.EndpointID{3}, want)
			y.Match(q, []block.EndpointID{3}, got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatal(diff)
			}
		}
	}
}

// A snapshot above the limit is refused: of a large source, and of a source whose blocks all lie
// below the same long gap, which is repeated for each.
func TestSnapshotLimit(t *testing.T) {
	h, name := block.NewHasher(block.Seed{1}), block.Source{Endpoint: 3}
	x, root := indexer.New(indexer.Options{Hasher: h}), h.Root(block.Scope{})
	_, d := storedChain(h, root, 1, 1000, 8)
	x.Apply(name, &d)
	for i := range 500 {
		_, leaf := storedChain(h, d.Blocks[999].Key, uint64(1000+i), 1, 8)
		leaf.Ops[0].Root, leaf.Ops[0].Parent = false, d.Blocks[999].Hash
		x.Apply(name, &leaf)
	}
	for _, limit := range []int{100, 10_000} {
		if _, err := allPages(x, name, SnapshotLimits{Page: 1000, Total: limit}); !errors.Is(err, ErrSnapshotSize) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	x.Apply(name, removal(&d))
	if n := x.Blocks(name); n != 500 {
		t.Fatalf("%d blocks left", n)
	}
	if _, err := allPages(x, name, SnapshotLimits{Page: 128 << 10, Total: 1 << 20}); !errors.Is(err, ErrSnapshotSize) {
		t.Errorf("gap: %v", err)
	}
	pages, err := allPages(x, name, SnapshotLimits{Page: 128 << 10, Total: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if n := restored(t, h, name, pages).Blocks(name); n != 500 {
		t.Errorf("%d blocks of 500", n)
	}
}

// BenchmarkSnapshot reports how many entries of a source are encoded into pages, and decoded, per
// second.
func BenchmarkSnapshot(b *testing.B) {
	name, h := block.Source{Endpoint: 7}, block.NewHasher(block.Seed{1})
	x, root := indexer.New(indexer.Options{Hasher: h}), h.Root(block.Scope{Model: "m"})
	for seed := range uint64(1000) {
		_, d := storedChain(h, root, seed+1, 100, 64)
		x.Apply(name, &d)
	}
	n := x.Blocks(name)
	var pages [][]byte
	b.Run("make", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			pages, _ = allPages(x, name, SnapshotLimits{Page: 128 << 10, Total: 64 << 20})
		}
		b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
	})
	b.Run("load", func(b *testing.B) {
		y, d := indexer.New(indexer.Options{Hasher: h}), block.Delta{}
		b.ReportAllocs()
		for b.Loop() {
			stage := y.Stage(name, n)
			for _, p := range pages {
				if err := DecodeDelta(p, &d); err != nil {
					b.Fatal(err)
				}
				stage.Apply(&d)
			}
			stage.Commit()
		}
		b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
	})
}

// allPages returns all pages of a source.
func allPages(x *indexer.Index, name block.Source, limits SnapshotLimits) (pages [][]byte, err error) {
	s := OpenSnapshot(x, name, limits)
	defer s.Close()
	for {
		p, err := s.Next()
		if p == nil || err != nil {
			return pages, err
		}
		pages = append(pages, p)
	}
}

func removal(d *block.Delta) *block.Delta {
	rm := &block.Delta{}
	for i := len(d.Blocks) - 1; i >= 0; i-- {
		rm.Ops = append(rm.Ops, block.Op{Kind: block.OpRemove, First: uint32(len(rm.Hashes)), N: 1})
		rm.Hashes = append(rm.Hashes, d.Blocks[i].Hash)
	}
	return rm
}

// storedChain returns a random text of n blocks and the delta that stores it.
func storedChain(h block.Hasher, root block.Key, seed uint64, n, size int) ([]byte, block.Delta) {
	r := rand.New(rand.NewPCG(seed, 1))
	text := make([]byte, n*size)
	for i := 0; i+8 <= len(text); i += 8 {
		binary.LittleEndian.PutUint64(text[i:], r.Uint64())
	}
	d := block.Delta{Ops: []block.Op{{Kind: block.OpStore, Root: true, From: root, N: uint32(n)}}}
	key := root
	for i := range n {
		key = h.Child(key, text[i*size:(i+1)*size])
		d.Blocks = append(d.Blocks, block.StoredBlock{Hash: block.EngineHash(seed<<20 + uint64(i)), Key: key, Bytes: uint32(size), Tokens: 16})
	}
	return text, d
}
