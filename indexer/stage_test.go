package indexer

import (
	"sync"
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// drained returns the remaining pages of a view.
func drained(t *testing.T, v *View) (parts []block.Delta) {
	t.Helper()
	defer v.Close()
	for more := true; more; {
		var d block.Delta
		var err error
		if more, err = v.Next(&d, 50); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, d)
	}
	return parts
}

// restored returns an index with the pages of a view.
func restored(t *testing.T, h block.Hasher, name block.Source, parts []block.Delta) *Index {
	t.Helper()
	y, blocks := New(Options{Hasher: h}), 0
	for i := range parts {
		blocks += len(parts[i].Blocks)
	}
	stage := y.Stage(name, blocks)
	for i := range parts {
		if st := stage.Apply(&parts[i]); st.UnknownParent+st.Refused > 0 {
			t.Fatalf("does not apply: %+v", st)
		}
	}
	stage.Commit()
	return y
}

// grown fills a source with chains, and returns the stored deltas.
func grown(x *Index, h block.Hasher, name block.Source, chains, blocks int) (all []block.Delta) {
	root := h.Root(block.Scope{Model: "m"})
	for seed := range uint64(chains) {
		_, d := storedChain(h, root, seed+1, blocks, 8)
		x.Apply(name, &d)
		all = append(all, d)
	}
	return all
}

// bury makes empty writes until all removed data is released, and returns their number.
func bury(x *Index) (steps int) {
	for ; len(x.dying) > 0; steps++ {
		x.Reset(block.Source{Endpoint: 99})
	}
	for range 4 { // for the epochs
		x.Reset(block.Source{Endpoint: 99})
	}
	return steps
}

// A view is the source's content at its creation. Writes during the making of its pages do not
// change it: removals of all blocks, new blocks in their memory, a restart.
func TestViewStaysAsItWas(t *testing.T) {
	h, name, other := block.NewHasher(block.Seed{1}), block.Source{Endpoint: 3}, block.Source{Endpoint: 4}
	x := New(Options{Hasher: h})
	all := grown(x, h, name, 100, 200)
	n, xor := x.Digest(name)
	views := []*View{x.View(name, 1<<20), x.View(name, 1<<20), x.View(name, 1<<20)}
	var some block.Delta
	if more, err := views[1].Next(&some, 50); err != nil || !more || len(some.Blocks) == 0 {
		t.Fatal(more, err)
	}
	for i := range all {
		x.Apply(name, removal(&all[i]))
		_, d := storedChain(h, h.Root(block.Scope{Model: "m"}), 1000+uint64(i), 250, 8)
		x.Apply(other, &d)
		if i == 50 {
			views = append(views, x.View(name, 1<<20))
		}
	}
	if left := x.Blocks(name); left != 0 {
		t.Fatalf("%d blocks left", left)
	}
	x.Reset(name)
	grown(x, h, name, 3, 5)
	for i, v := range views {
		if i == 1 {
			v.Close() // half way
			continue
		}
		pages := drained(t, v)
		y := restored(t, h, name, pages)
		yn, yxor := y.Digest(name)
		if i < 3 && (yn != n || yxor != xor) || i == 3 && yn != 49*200 {
			t.Errorf("view %d: digest %d %x, not %d %x", i, yn, yxor, n, xor)
		}
	}
	x.Reset(other)
	bury(x)
	if st := x.Stats(); st.Entries != 15 || st.Nodes != 16 {
		t.Errorf("something is left: %+v", st)
	}
}

// Pages are made while others write and match.
func TestViewBesideWriters(t *testing.T) {
	h, name := block.NewHasher(block.Seed{1}), block.Source{Endpoint: 3}
	x := New(Options{Hasher: h})
	all := grown(x, h, name, 50, 100)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				x.Apply(name, removal(&all[i%len(all)]))
				x.Apply(name, &all[i%len(all)])
			}
		}
	})
	for range 20 {
		pages := drained(t, x.View(name, 1<<20))
		y := restored(t, h, name, pages)
		if n := y.Blocks(name); n != 50*100 && n != 49*100 {
			t.Errorf("%d blocks: that is not of one moment", n)
		}
	}
	close(stop)
	wg.Wait()
}

// A stage is invisible until it replaces the previous content, at once.
func TestStageReplacesAtOnce(t *testing.T) {
	h, name, root := block.NewHasher(block.Seed{1}), block.Source{Endpoint: 3}, block.Key(0)
	x := New(Options{Hasher: h, MaxSourceBlocks: 100})
	root = h.Root(block.Scope{})
	text, d := storedChain(h, root, 1, 10, 8)
	oldText, old := storedChain(h, root, 2, 10, 8)
	x.Apply(name, &old)
	run := func(text []byte) int32 {
		dst := make([]block.Run, 1)
		x.Match(block.Query{Root: root, Bytes: text}, []block.EndpointID{3}, dst)
		return dst[0].Blocks
	}
	kept, given := x.Stage(name, 10), x.Stage(name, 10)
	for _, s := range []*Stage{kept, given} {
		if st := s.Apply(&d); st.Stored != 10 {
			t.Fatalf("%+v", st)
		}
	}
	if a, b := run(text), run(oldText); a != 0 || b != 10 {
		t.Errorf("before: %d of the new, %d of the old", a, b)
	}
	given.Discard()
	given.Discard()
	n, xor := kept.Digest()
	kept.Commit()
	if a, b := run(text), run(oldText); a != 10 || b != 0 {
		t.Errorf("after: %d of the new, %d of the old", a, b)
	}
	if gn, gxor := x.Digest(name); gn != n || gxor != xor || n != 10 {
		t.Errorf("digest %d %x, not %d %x", gn, gxor, n, xor)
	}
	cleared := x.Stage(name, 0)
	cleared.Apply(&old)
	cleared.Apply(&block.Delta{Ops: []block.Op{{Kind: block.OpClear}}})
	cleared.Commit()
	bury(x)
	if st := x.Stats(); st.Nodes != 0 || st.Entries != 0 || st.Sets != 0 {
		t.Errorf("something is left: %+v", st)
	}
}

// A large source disappears at once for readers. Its memory is released in steps, while others
// write.
func TestLargeSourceIsReleasedInSteps(t *testing.T) {
	h, name := block.NewHasher(block.Seed{1}), block.Source{Endpoint: 3}
	x := New(Options{Hasher: h})
	all := grown(x, h, name, 300, 200)
	x.Reset(name)
	if st := x.Stats(); st.Entries != 0 || st.Nodes == 0 || len(x.dying) != 1 {
		t.Errorf("at once: %+v", st)
	}
	x.Apply(name, &all[7])
	if steps := bury(x); steps < 10 || steps > 300 {
		t.Errorf("released in %d steps", steps)
	}
	if st := x.Stats(); st.Nodes != 201 {
		t.Errorf("in the end: %+v", st)
	}
	if n := x.Blocks(name); n != 200 {
		t.Errorf("%d blocks of the new life", n)
	}
}

// A source that exceeds its limit counts as incomplete until it is empty. So does one whose
// snapshot has the maximum size.
func TestOverflowed(t *testing.T) {
	h, name := block.NewHasher(block.Seed{1}), block.Source{Endpoint: 3}
	x := New(Options{Hasher: h, MaxSourceBlocks: 100})
	grown(x, h, name, 1, 90)
	if x.Overflowed(3) {
		t.Error("before the limit")
	}
	grown(x, h, name, 2, 100)
	if !x.Overflowed(3) || x.Overflowed(4) || x.Blocks(name) != 100 {
		t.Errorf("%d blocks", x.Blocks(name))
	}
	y := New(Options{Hasher: h, MaxSourceBlocks: 100})
	stage := y.Stage(name, 100)
	for _, d := range drained(t, x.View(name, 1<<20)) {
		stage.Apply(&d)
	}
	if stage.Commit(); !y.Overflowed(3) {
		t.Error("loaded from it")
	}
	for _, x := range []*Index{x, y} {
		if x.Apply(name, &block.Delta{Ops: []block.Op{{Kind: block.OpClear}}}); x.Overflowed(3) {
			t.Error("empty again")
		}
	}
}

// Match works while a snapshot, or any writer, holds the index.
func TestMatchPassesWriters(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	x, root := New(Options{Hasher: h}), h.Root(block.Scope{})
	text, d := storedChain(h, root, 1, 10, 8)
	x.Apply(block.Source{}, &d)
	x.mu.Lock()
	defer x.mu.Unlock()
	dst := make([]block.Run, 1)
	if x.Match(block.Query{Root: root, Bytes: text}, []block.EndpointID{0}, dst); dst[0].Blocks != 10 {
		t.Errorf("got %+v", dst[0])
	}
}
