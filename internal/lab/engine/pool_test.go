package engine

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naivePool is a reference implementation of pool with linear searches.
type naivePool struct {
	free  []int32       // front is evicted first
	ref   map[int32]int // absent: 0
	cache []naiveEntry  // in order of registration
}

type naiveEntry struct {
	name  Hash
	block int32
}

func newNaivePool(n int) *naivePool {
	p := &naivePool{ref: map[int32]int{}}
	for i := range n {
		p.free = append(p.free, int32(i))
	}
	return p
}

func (p *naivePool) lookup(h Hash) (int32, bool) {
	for _, e := range p.cache {
		if e.name == h {
			return e.block, true
		}
	}
	return 0, false
}

func (p *naivePool) touch(b int32) {
	if p.ref[b] == 0 {
		p.free = slices.DeleteFunc(p.free, func(x int32) bool { return x == b })
	}
	p.ref[b]++
}

func (p *naivePool) take() (b int32, evicted []Hash) {
	b, p.free = p.free[0], slices.Clone(p.free[1:])
	p.cache = slices.DeleteFunc(p.cache, func(e naiveEntry) bool {
		if e.block == b {
			evicted = append(evicted, e.name)
		}
		return e.block == b
	})
	p.ref[b] = 1
	return b, evicted
}

func (p *naivePool) release(b int32) {
	p.ref[b]--
	if p.ref[b] == 0 {
		p.free = append(p.free, b)
	}
}

func (p *pool) freeOrder() (order []int32) {
	for b := p.next[p.size()]; b != int32(p.size()); b = p.next[b] {
		order = append(order, b)
	}
	return order
}

// TestPoolLaw holds the pool against the naive one under random operations:
// same blocks handed out, same names found, same names evicted, same free
// queue.
func TestPoolLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 12).Draw(t, "size")
		got, want := newPool(size), newNaivePool(size)
		var evicted []Hash
		got.evicted = func(h Hash) { evicted = append(evicted, h) }
		var held []int32 // one entry per reference
		name := rapid.Custom(func(t *rapid.T) Hash { return Hash(rapid.IntRange(0, 5).Draw(t, "name")) })

		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				if len(want.free) == 0 {
					return
				}
				evicted = nil
				wb, we := want.take()
				if gb := got.take(); gb != wb || !slices.Equal(evicted, we) {
					t.Fatalf("took %d evicting %v, want %d evicting %v", gb, evicted, wb, we)
				}
				held = append(held, wb)
				if rapid.Bool().Draw(t, "register") {
					h := name.Draw(t, "h")
					want.cache = append(want.cache, naiveEntry{h, wb})
					got.register(wb, h)
				}
			},
			"hit": func(t *rapid.T) {
				h := name.Draw(t, "h")
				wb, wok := want.lookup(h)
				gb, gok := got.lookup(h)
				if gok != wok || gok && gb != wb {
					t.Fatalf("lookup(%d) = %d %v, want %d %v", h, gb, gok, wb, wok)
				}
				if !wok {
					return
				}
				want.touch(wb)
				got.touch(wb)
				held = append(held, wb)
			},
			"release": func(t *rapid.T) {
				if len(held) == 0 {
					return
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "i")
				want.release(held[i])
				got.release(held[i])
				held = slices.Delete(held, i, i+1)
			},
			"clear": func(t *rapid.T) {
				if done := got.clear(); done != (len(want.free) == size) {
					t.Fatalf("clear = %v with %d of %d free", done, len(want.free), size)
				} else if done {
					want.cache = nil
				}
			},
			"": func(t *rapid.T) {
				if order := got.freeOrder(); !slices.Equal(order, want.free) || got.free != len(order) {
					t.Fatalf("free queue %v (%d), want %v", order, got.free, want.free)
				}
				if got.named != len(want.cache) {
					t.Fatalf("%d named blocks, want %d", got.named, len(want.cache))
				}
				for b := range int32(size) {
					if int(got.ref[b]) != want.ref[b] {
						t.Fatalf("block %d has %d references, want %d", b, got.ref[b], want.ref[b])
					}
				}
			},
		})
	})
}

// TestEvictionOrder: the end of an ended request's prefix is evicted first, and a hit saves a block
// from eviction.
func TestEvictionOrder(t *testing.T) {
	e := mustNew(t, Config{BlockSize: 4, Blocks: 6, Events: true, Model: unit})
	run(t, e, Request{ID: 1, Prompt: 13, Output: 1, Blocks: []Hash{1, 2, 3}})
	run(t, e, Request{ID: 2, Prompt: 5, Output: 1, Blocks: []Hash{1}}) // renews 1
	var removed []Hash
	for _, ev := range run(t, e, Request{ID: 3, Prompt: 21, Output: 1, Blocks: []Hash{11, 12, 13, 14, 15}}) {
		if ev.Kind == Removed {
			removed = append(removed, ev.Hash)
		}
	}
	if want := []Hash{3, 2, 1}; !slices.Equal(removed, want) {
		t.Errorf("evicted %v, want %v", removed, want)
	}
}
