package indexer

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// comeAndGo adds, restarts, changes and removes n sources, and returns the bytes allocated per
// source.
func comeAndGo(n int) uint64 {
	h := block.NewHasher(block.Seed{1})
	x := New(Options{Hasher: h})
	root := h.Root(block.Scope{Model: "m"})
	name := func(i int) block.Source { return block.Source{Endpoint: block.EndpointID(i)} }
	_, d := storedChain(h, root, 1, 2, 8)
	others := make([]block.Delta, n)
	for i := range others {
		_, others[i] = storedChain(h, root, uint64(i+2), 2, 8)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range n {
		x.Apply(name(i), &others[i])
	}
	for i := range n {
		x.Reset(name(i))
		stage := x.Stage(name(i), 2)
		stage.Apply(&d)
		stage.Discard()
		stage = x.Stage(name(i), 2)
		stage.Apply(&others[i])
		stage.Commit()
	}
	for i := range n {
		x.RemoveEndpoint(block.EndpointID(i))
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / uint64(n)
}

// The cost of adding, restarting and removing a source does not depend on the number of sources:
// the readers' list of all sources is not copied each time.
func TestSourcesCostTheSameAmongMany(t *testing.T) {
	if few, many := comeAndGo(500), comeAndGo(10_000); many > 2*few {
		t.Errorf("a source among 500 takes %d bytes, one among 10,000 %d", few, many)
	}
}

// BenchmarkSourcesComeAndGo reports the cost of one source among many.
func BenchmarkSourcesComeAndGo(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			start := cpuTime(b)
			for b.Loop() {
				comeAndGo(n)
			}
			b.ReportMetric(float64((cpuTime(b)-start).Microseconds())/float64(b.N)/float64(n), "cpu-µs/source")
		})
	}
}

// If several sources of an endpoint exceed the limit, the endpoint counts as overflowed until the
// last one is empty.
func TestOverflowIsCountedBySource(t *testing.T) {
	h := block.NewHasher(block.Seed{1})
	x := New(Options{Hasher: h, MaxSourceBlocks: 4})
	root := h.Root(block.Scope{Model: "m"})
	told := func(when string, want bool) {
		t.Helper()
		if got := x.Overflowed(7); got != want || x.Overflowed(6) {
			t.Errorf("%s: %v", when, got)
		}
	}
	_, d := storedChain(h, root, 1, 8, 8)
	for rank := range uint16(2) {
		for range 2 {
			x.Apply(block.Source{Endpoint: 7, Rank: rank}, &d)
		}
	}
	told("both are full", true)
	x.Reset(block.Source{Endpoint: 7})
	told("one of two is empty", true)
	stage := x.Stage(block.Source{Endpoint: 7, Rank: 1}, 8)
	stage.Apply(&d)
	told("a stage is full", true)
	stage.Commit()
	told("one was replaced by another that is full", true)
	stage = x.Stage(block.Source{Endpoint: 7, Rank: 1}, 8)
	stage.Commit()
	told("by an empty one", false)
	x.Apply(block.Source{Endpoint: 7, Rank: 1}, &d)
	x.RemoveEndpoint(7)
	told("all is gone", false)
}

// The content of a large source is hidden at once when it is replaced, restarted or removed, even
// if releasing its blocks takes long.
func TestLargeSourceIsHiddenAtOnce(t *testing.T) {
	h, name := block.NewHasher(block.Seed{1}), block.Source{Endpoint: 3}
	root := h.Root(block.Scope{Model: "m"})
	for what, hide := range map[string]func(*Index){
		"replaced": func(x *Index) { x.Stage(name, 0).Commit() },
		"emptied":  func(x *Index) { x.Reset(name) },
		"cleared":  func(x *Index) { x.Apply(name, &block.Delta{Ops: []block.Op{{Kind: block.OpClear}}}) },
		"removed":  func(x *Index) { x.RemoveEndpoint(3) },
	} {
		x := New(Options{Hasher: h})
		grown(x, h, name, 400, 100)
		run := func() (n int32) {
			for chain := range uint64(50) { // for some, the beginning is released
				text, _ := storedChain(h, root, chain+1, 100, 8)
				var dst [1]block.Run
				x.Match(block.Query{Root: root, Bytes: text}, []block.EndpointID{3}, dst[:])
				n += dst[0].Blocks
			}
			return n
		}
		before := run()
		hide(x)
		if after := run(); before != 5000 || after != 0 || len(x.dying) == 0 {
			t.Errorf("%s: %d blocks before, %d afterwards, while %d sources are being released", what, before, after, len(x.dying))
		}
	}
}
