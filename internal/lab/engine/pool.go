package engine

// pool is the paged KV cache: physical blocks with reference counts, the free queue in order of
// eviction, and the prefix cache from names to blocks. An unused block keeps its name, and can be
// hit, until it is reallocated. Blocks of equal name are chained in order of registration.
type pool struct {
	name   []Hash
	cached []bool
	ref    []int32
	next   []int32 // free queue; index len(ref) is the sentinel
	prev   []int32
	twin   []int32 // next block of the same name, or -1
	first  map[Hash]int32
	free   int
	named  int // blocks in the prefix cache, twins included

	evicted func(Hash) // called when a name leaves the cache; may be nil
}

func newPool(n int) *pool {
	p := &pool{
		name: make([]Hash, n), cached: make([]bool, n), ref: make([]int32, n),
		next: make([]int32, n+1), prev: make([]int32, n+1), twin: make([]int32, n),
		first: map[Hash]int32{}, free: n,
	}
	for i := range n + 1 {
		p.next[i] = int32((i + 1) % (n + 1))
		p.prev[i] = int32((i + n) % (n + 1))
	}
	return p
}

func (p *pool) size() int { return len(p.ref) }

// lookup returns the first block of a name.
func (p *pool) lookup(h Hash) (int32, bool) {
	b, ok := p.first[h]
	return b, ok
}

// touch takes a reference to a cached block.
func (p *pool) touch(b int32) {
	if p.ref[b] == 0 {
		p.unlink(b)
	}
	p.ref[b]++
}

// take returns the front block of the free queue with one reference and evicts its content. The
// queue must not be empty.
func (p *pool) take() int32 {
	b := p.next[p.size()]
	p.unlink(b)
	if p.cached[b] {
		p.forget(b)
	}
	p.ref[b] = 1
	return b
}

// release drops one reference; the last one puts the block at the end of the
// free queue.
func (p *pool) release(b int32) {
	p.ref[b]--
	if p.ref[b] > 0 {
		return
	}
	end := int32(p.size())
	last := p.prev[end]
	p.next[last], p.prev[b] = b, last
	p.next[b], p.prev[end] = end, b
	p.free++
}

func (p *pool) unlink(b int32) {
	p.next[p.prev[b]], p.prev[p.next[b]] = p.next[b], p.prev[b]
	p.free--
}

// register enters a block in the prefix cache, behind its twins.
func (p *pool) register(b int32, h Hash) {
	p.name[b], p.cached[b], p.twin[b] = h, true, -1
	p.named++
	at, ok := p.first[h]
	if !ok {
		p.first[h] = b
		return
	}
	for p.twin[at] >= 0 {
		at = p.twin[at]
	}
	p.twin[at] = b
}

func (p *pool) forget(b int32) {
	h := p.name[b]
	p.cached[b] = false
	p.named--
	if p.evicted != nil {
		p.evicted(h)
	}
	at := p.first[h]
	if at == b {
		if p.twin[b] < 0 {
			delete(p.first, h)
			return
		}
		p.first[h] = p.twin[b]
		return
	}
	for p.twin[at] != b {
		at = p.twin[at]
	}
	p.twin[at] = p.twin[b]
}

// clear empties the prefix cache. It returns false without any change while a block is in use.
func (p *pool) clear() bool {
	if p.free != p.size() {
		return false
	}
	clear(p.first)
	clear(p.cached)
	p.named = 0
	return true
}
