package share

import (
	"errors"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/wire"
	"github.com/grapevine-epp/grapevine/internal/share/plan"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// chainDelta stores a chain of n blocks, removes every third, and clears before both.
func chainDelta(n int) *block.Delta {
	d := &block.Delta{Ops: []block.Op{{Kind: block.OpClear}, {Kind: block.OpStore, Root: true, From: 5, N: uint32(n)}}}
	for i := range n {
		d.Blocks = append(d.Blocks, block.StoredBlock{Hash: block.EngineHash(i + 1), Key: block.Key(i + 1000), Bytes: 64, Tokens: 16})
		if i%3 == 0 {
			d.Hashes = append(d.Hashes, block.EngineHash(i+1))
		}
	}
	d.Ops = append(d.Ops, block.Op{Kind: block.OpRemove, N: uint32(len(d.Hashes))})
	return d
}

func digestOf(deltas ...block.Delta) [2]uint64 {
	x := indexer.New(indexer.Options{Hasher: block.NewHasher(block.Seed{})})
	for i := range deltas {
		x.Apply(block.Source{}, &deltas[i])
	}
	n, xor := x.Digest(block.Source{})
	return [2]uint64{n, xor}
}

// A batch over the limits of one delta has the same effect when split.
func TestPayloadSplits(t *testing.T) {
	for _, n := range []int{1, 100, wire.MaxDeltaBlocks, wire.MaxDeltaBlocks + 1, 3*wire.MaxDeltaBlocks + 7} {
		d := chainDelta(n)
		sum, parts, err := readPayload(appendPayload(nil, 42, d))
		if err != nil || sum != 42 {
			t.Fatalf("%d blocks: sum = %d, err = %v", n, sum, err)
		}
		for _, p := range parts {
			if len(p.Ops) > wire.MaxDeltaOps || len(p.Blocks) > wire.MaxDeltaBlocks || len(p.Hashes) > wire.MaxDeltaHashes {
				t.Errorf("%d blocks: part exceeds the limits: %d ops, %d blocks, %d hashes", n, len(p.Ops), len(p.Blocks), len(p.Hashes))
			}
		}
		if got, want := digestOf(parts...), digestOf(*d); got != want {
			t.Errorf("%d blocks: content %v, want %v", n, got, want)
		}
	}
}

func TestPayloadManyOps(t *testing.T) {
	d := &block.Delta{}
	for i := range wire.MaxDeltaOps + 10 {
		d.Ops = append(d.Ops, block.Op{Kind: block.OpStore, Root: true, From: block.Key(i%100 + 1), First: uint32(i), N: 1})
		d.Blocks = append(d.Blocks, block.StoredBlock{Hash: block.EngineHash(i + 1), Key: block.Key(i + 1<<20), Bytes: 64, Tokens: 16})
	}
	_, parts, err := readPayload(appendPayload(nil, 1, d))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := digestOf(parts...), digestOf(*d); got != want || len(parts) < 2 {
		t.Errorf("content %v in %d parts, want %v", got, len(parts), want)
	}
}

func FuzzPayload(f *testing.F) {
	f.Add(appendPayload(nil, 7, chainDelta(9)))
	f.Add(appendPayload(nil, 7, &block.Delta{}))
	f.Add([]byte{1, 2, 3})
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		if _, parts, err := readPayload(b); err == nil {
			digestOf(parts...)
		}
		_, _ = readHead(b)
	})
}

// FuzzStage: pages from a peer are accepted or rejected. Their memory is proportional to their
// length, not to the size that the peer announced.
func FuzzStage(f *testing.F) {
	a, _ := testStore(plan.Shared)
	if err := a.Apply(cluster.Delta{Source: "a/0", Payload: appendPayload(nil, 1, chainDelta(20))}); err != nil {
		f.Fatal(err)
	}
	pages, err := pagesOf(a, 1<<17)
	if err != nil {
		f.Fatal(err)
	}
	for _, p := range pages[1:] {
		f.Add(uint64(maxSnapshot), p)
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, announced uint64, page []byte) {
		st, _ := testStore(plan.Shared)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		g, err := st.Stage("a/0", min(announced, maxSnapshot))
		if err != nil {
			t.Fatal(err)
		}
		if g.Page(pages[0]) == nil {
			_ = g.Page(page)
		}
		g.Discard()
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20+100*uint64(len(page)) {
			t.Errorf("%d bytes announced, %d received: %d bytes allocated", announced, len(page), got)
		}
	})
}

// testStore is a store with one shared source.
func testStore(mode plan.Mode) (store, *source) {
	x := &Index{wake: make(chan struct{}, 1)}
	s := &source{name: "a/0", x: indexer.New(indexer.Options{Hasher: block.NewHasher(block.Seed{})}), mode: mode}
	x.byName.Store(&map[string]*source{s.name: s})
	return store{x}, s
}

// pagesOf returns a source's snapshot.
func pagesOf(st store, size int) (pages [][]byte, err error) {
	d, err := st.Snapshot("a/0", size)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	for {
		p, err := d.Next()
		if p == nil || err != nil {
			return pages, err
		}
		pages = append(pages, p)
	}
}

// restore commits a snapshot.
func restore(st store, pages [][]byte) error {
	g, err := st.Stage("a/0", 1000)
	if err != nil {
		return err
	}
	for _, p := range pages {
		if err := g.Page(p); err != nil {
			g.Discard()
			return err
		}
	}
	if err := g.Commit(); err != nil {
		g.Discard()
		return err
	}
	return nil
}

// TestStageMemory: the memory for a snapshot is proportional to the received data, not to the
// announced size.
func TestStageMemory(t *testing.T) {
	a, _ := testStore(plan.Shared)
	for n := range uint64(6) {
		d := chainDelta(30_000)
		d.Ops = d.Ops[1:]
		for i := range d.Blocks {
			d.Blocks[i].Hash += block.EngineHash(n << 32)
			d.Blocks[i].Key += block.Key(n << 32)
		}
		if err := a.Apply(cluster.Delta{Source: "a/0", Payload: appendPayload(nil, n+1, d)}); err != nil {
			t.Fatal(err)
		}
	}
	pages, err := pagesOf(a, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	for _, announced := range []uint64{0, 1 << 20, maxSnapshot} {
		st, _ := testStore(plan.Shared)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		g, err := st.Stage("a/0", announced)
		if err != nil {
			t.Fatal(err)
		}
		came := uint64(0)
		for _, p := range pages {
			if err := g.Page(p); err != nil {
				t.Fatal(err)
			}
			came += uint64(len(p))
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20+40*came {
				t.Fatalf("%d bytes announced, %d received: %d bytes allocated", announced, came, got)
			}
		}
		g.Discard()
		t.Logf("%d bytes announced, %d came in %d pages: %d were allocated", announced, came, len(pages), after.TotalAlloc-before.TotalAlloc)
	}
}

// A snapshot carries content and position. Malformed data changes nothing.
func TestStoreSnapshot(t *testing.T) {
	a, _ := testStore(plan.Shared)
	for i, n := range []int{5000, 50} {
		d := chainDelta(n)
		if i > 0 {
			d.Ops = d.Ops[1:] // without the clear, so that it adds copies
		}
		if err := a.Apply(cluster.Delta{Source: "a/0", First: uint64(i), Last: uint64(i), Payload: appendPayload(nil, uint64(i), d)}); err != nil {
			t.Fatal(err)
		}
	}
	pages, err := pagesOf(a, 1<<17)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range pages {
		if len(p) > 1<<17 {
			t.Errorf("page %d exceeds the limit with %d bytes", i, len(p))
		}
	}
	b, s := testStore(plan.Shared)
	if err := b.Apply(cluster.Delta{Source: "a/0", Payload: appendPayload(nil, 9, chainDelta(77))}); err != nil {
		t.Fatal(err)
	}
	before := b.Digest("a/0")
	bad := append([][]byte{}, pages...)
	bad[1] = bad[1][:len(bad[1])-3]
	for _, p := range [][][]byte{bad, {{1, 2}}, {pages[1]}} {
		if err := restore(b, p); err == nil {
			t.Error("malformed snapshot was accepted")
		}
	}
	if err := b.Apply(cluster.Delta{Source: "a/0", Payload: []byte("nonsense")}); err == nil {
		t.Error("malformed delta was accepted")
	}
	if b.Digest("a/0") != before {
		t.Error("rejected data changed the content")
	}
	if err := restore(b, pages); err != nil {
		t.Fatal(err)
	}
	if got, want := b.Digest("a/0"), a.Digest("a/0"); got != want {
		t.Errorf("content %v, want %v", got, want)
	}
	if diff := cmp.Diff(shareHead{have: true, last: 1, sum: 1}, s.head, cmp.AllowUnexported(shareHead{})); diff != "" {
		t.Error(diff)
	}
}

// For any requested page size, a page fits in a 1 MiB message with its framing.
func TestStorePagesFitFrames(t *testing.T) {
	a, s := testStore(plan.Shared)
	for i := range uint64(300) {
		d := chainDelta(1000)
		d.Ops = d.Ops[1:]
		for k := range d.Blocks {
			d.Blocks[k].Hash += block.EngineHash(i << 32)
			d.Blocks[k].Key += block.Key(i << 32)
		}
		d.Ops[1].N = 0
		if n := s.x.Apply(s.src, d); n.Stored != 1000 {
			t.Fatalf("%+v", n)
		}
	}
	const frame = 1<<20 - 4<<10
	for _, size := range []int{1 << 12, 1 << 17, 1 << 19} {
		pages, err := pagesOf(a, size)
		if err != nil {
			t.Fatal(err)
		}
		total := 0
		for _, p := range pages {
			if total += len(p); len(p) > min(size, frame) {
				t.Errorf("page of %d bytes, requested size %d", len(p), size)
			}
		}
		if least := 300_000 * 17; total < least || len(pages) > 2+3*total/(2*size) {
			t.Errorf("%d bytes in %d pages of %d", total, len(pages), size)
		}
	}
}

// The log cannot change content that the reader owns.
func TestStoreKeepsOut(t *testing.T) {
	st, s := testStore(plan.Direct)
	s.x.Apply(s.src, chainDelta(10))
	want := [2]uint64{}
	want[0], want[1] = s.x.Digest(s.src)
	if err := st.Apply(cluster.Delta{Source: "a/0", Payload: appendPayload(nil, 9, chainDelta(77))}); !errors.Is(err, errNotShared) {
		t.Errorf("apply: %v", err)
	}
	st.Reset("a/0", 3)
	st.Forget("a/0")
	if err := restore(st, nil); !errors.Is(err, errNotShared) {
		t.Errorf("restore: %v", err)
	}
	if _, err := st.Snapshot("a/0", 1); !errors.Is(err, errNotShared) {
		t.Errorf("snapshot: %v", err)
	}
	if n, xor := s.x.Digest(s.src); [2]uint64{n, xor} != want {
		t.Error("log changed content that the reader owns")
	}
}

// The blocks of a batch that a reader could place are applied, and the batch counts as incomplete:
// blocks may be missing, but no evicted block is listed.
func TestStoreMarksWhatWasMissed(t *testing.T) {
	for _, missed := range []bool{false, true} {
		st, s := testStore(plan.Shared)
		payload := appendPayload(nil, 9, chainDelta(10))
		if missed {
			payload[0] |= payloadMissed
		}
		err := st.Apply(cluster.Delta{Source: "a/0", Payload: payload})
		if errors.Is(err, cluster.ErrUnsure) != missed || !missed && err != nil {
			t.Errorf("missed = %v: Apply() = %v", missed, err)
		}
		if n, _ := s.x.Digest(s.src); n != 6 || s.head.mayBeStale || s.head.sum != 9 {
			t.Errorf("missed = %v: %d blocks, head %+v", missed, n, s.head)
		}
		if payloadNeeds(payload) != 1 {
			t.Errorf("missed = %v: payloadNeeds() = %d", missed, payloadNeeds(payload))
		}
	}
}
