package indexer

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// spotty fills a source with what snapshots have to cope with: chains that
// another source stored first, branches, copies, two names and two tiers of one
// block, blocks that are not canonical, and holes in the middle.
func spotty(x *Index, h Hasher, name Source) (queries []Query) {
	root := h.Root(Scope{Model: "m"})
	for seed := range uint64(40) {
		text, d := storedChain(h, root, seed+1, 60, 32)
		queries = append(queries, Query{Root: root, Bytes: text})
		if seed%3 == 0 {
			x.Apply(Source{Endpoint: 99}, &d)
		}
		if seed%5 == 0 {
			d.Blocks[40].Flags = FlagNonCanonical
		}
		x.Apply(name, &d)
		d.Ops[0].Tier, d.Ops[0].Group, d.Ops[0].N = TierCPU, uint8(seed%2), 20
		x.Apply(name, &d)
		if seed%4 == 0 {
			x.Apply(name, &d)
			for i := range d.Blocks {
				d.Blocks[i].Hash += 1 << 50
			}
			x.Apply(name, &d)
		}
		_, below := storedChain(h, d.Blocks[30].Key, 1000+seed, 12, 32)
		below.Ops[0].Root, below.Ops[0].Parent = false, EngineHash((seed+1)<<20+30)
		x.Apply(name, &below)
		rm := Delta{Ops: []Op{{Kind: OpRemove, N: 2}}, Hashes: []EngineHash{EngineHash((seed+1)<<20 + 25), EngineHash((seed+1)<<20 + 30)}}
		x.Apply(name, &rm)
	}
	return queries
}

func restored(t *testing.T, h Hasher, name Source, pages [][]byte) *Index {
	t.Helper()
	y, d := New(Options{Hasher: h}), Delta{}
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

// Pages keep to their size, and together they are the source, whatever the size.
func TestSnapshotPages(t *testing.T) {
	h, name := NewHasher(Seed{1}), Source{Endpoint: 3}
	x := New(Options{Hasher: h})
	queries := spotty(x, h, name)
	n, xor := x.Digest(name)
	for _, size := range []int{256, 1000, 10_000, 128 << 10} {
		pages, err := x.Snapshot(name, SnapshotLimits{Page: size, Total: 1 << 20})
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
		got, want := make([]Run, 1), make([]Run, 1)
		for _, q := range queries {
			x.Match(q, []EndpointID{3}, want)
			y.Match(q, []EndpointID{3}, got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatal(diff)
			}
		}
	}
}

// What would need more than the limit is refused: a large source, and one whose
// blocks all lie below the same long gap, which is repeated for each.
func TestSnapshotLimit(t *testing.T) {
	h, name := NewHasher(Seed{1}), Source{Endpoint: 3}
	x, root := New(Options{Hasher: h}), h.Root(Scope{})
	_, d := storedChain(h, root, 1, 1000, 8)
	x.Apply(name, &d)
	for i := range 500 {
		_, leaf := storedChain(h, d.Blocks[999].Key, uint64(1000+i), 1, 8)
		leaf.Ops[0].Root, leaf.Ops[0].Parent = false, d.Blocks[999].Hash
		x.Apply(name, &leaf)
	}
	for _, limit := range []int{100, 10_000} {
		if _, err := x.Snapshot(name, SnapshotLimits{Page: 1000, Total: limit}); !errors.Is(err, ErrSnapshotSize) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	x.Apply(name, removal(&d))
	if n := x.Blocks(name); n != 500 {
		t.Fatalf("%d blocks left", n)
	}
	if _, err := x.Snapshot(name, SnapshotLimits{Page: 128 << 10, Total: 1 << 20}); !errors.Is(err, ErrSnapshotSize) {
		t.Errorf("gap: %v", err)
	}
	pages, err := x.Snapshot(name, SnapshotLimits{Page: 128 << 10, Total: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if n := restored(t, h, name, pages).Blocks(name); n != 500 {
		t.Errorf("%d blocks of 500", n)
	}
}

// Requests are matched while a snapshot, or any writer, holds the index.
func TestMatchPassesWriters(t *testing.T) {
	h := NewHasher(Seed{1})
	x, root := New(Options{Hasher: h}), h.Root(Scope{})
	text, d := storedChain(h, root, 1, 10, 8)
	x.Apply(Source{}, &d)
	x.mu.Lock()
	defer x.mu.Unlock()
	dst := make([]Run, 1)
	if x.Match(Query{Root: root, Bytes: text}, []EndpointID{0}, dst); dst[0].Blocks != 10 {
		t.Errorf("got %+v", dst[0])
	}
}

// A table that was made for its entries holds them without growing.
func TestSizedTables(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{0, 1, 200, 1000, 1300, 20_000, 131_072, 500_000} {
		a := sized(n)
		slots := a.slots
		for i := range n {
			a.raise(EngineHash(r.Uint64()), uint32(i+1), taken)
		}
		if a.n != n || a.slots > slots+slots/50 || n > 1000 && slots*3 > 5*n {
			t.Errorf("%d entries: %d slots, then %d", n, slots, a.slots)
		}
	}
}

// BenchmarkSnapshot reports how many entries of a source are put into pages, and
// taken from them, per second.
func BenchmarkSnapshot(b *testing.B) {
	bi := benchOnce()
	name, h := Source{Endpoint: 7}, bi.h
	n := bi.x.Blocks(name)
	var pages [][]byte
	b.Run("make", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			pages, _ = bi.x.Snapshot(name, SnapshotLimits{Page: 128 << 10, Total: 64 << 20})
		}
		b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
	})
	b.Run("view", func(b *testing.B) { // what writers wait for
		for b.Loop() {
			v := bi.x.View(name, SnapshotLimits{Page: 128 << 10, Total: 64 << 20})
			v.Close()
		}
	})
	b.Run("load", func(b *testing.B) {
		y, d := New(Options{Hasher: h}), Delta{}
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
