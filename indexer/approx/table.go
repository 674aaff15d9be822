package approx

import (
	"unsafe"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// table finds the holders of a chunk: a hash table by open addressing
// with linear probing, and an arena of holder lists. Nothing in it is a
// pointer, so the garbage collector has nothing to follow. Memory is kept for
// reuse: lists by class, in powers of two.
type table struct {
	nodes  []node // as many as a power of two
	used   int
	lists  []holder // arena
	places []uint32 // parallel to lists: where the holder's endpoint keeps the chunk
	free   [17]uint32
	_      uint32 // free: start of the first free list + 1, by class; chained through lists
}

// node is one chunk. A single holder lies in the node; several lie,
// sorted, in 2^class places of the arena.
type node struct {
	key   block.Key // 0: unused
	one   holder    // class 0: the holder; otherwise where its list starts
	place uint32    // class 0: the holder's place
	n     uint16    // holders
	class uint8
}

const minNodes = 8

func (t *table) memory() int {
	return cap(t.nodes)*int(unsafe.Sizeof(node{})) + cap(t.lists)*8 + cap(t.places)*4
}

func (t *table) home(key block.Key) int {
	return int(key>>shardBits) & (len(t.nodes) - 1)
}

// find returns the node of key, nil when no endpoint holds it.
func (t *table) find(key block.Key) *node {
	if len(t.nodes) == 0 || key == 0 {
		return nil
	}
	for i := t.home(key); ; i = (i + 1) & (len(t.nodes) - 1) {
		switch nd := &t.nodes[i]; nd.key {
		case key:
			return nd
		case 0:
			return nil
		}
	}
}

// list returns the holders of a node of class 1 or more.
func (t *table) list(nd *node) []holder { return t.lists[nd.one:][:nd.n] }

// locate returns the entry of ep at nd, nil when there is none.
func (t *table) locate(nd *node, ep block.EndpointID) (h *holder, place *uint32) {
	switch {
	case nd == nil:
	case nd.class > 0:
		list := t.list(nd)
		if i := searchHolder(list, ep); i < len(list) && list[i].endpoint() == ep {
			return &list[i], &t.places[int(nd.one)+i]
		}
	case nd.one.endpoint() == ep:
		return &nd.one, &nd.place
	}
	return nil, nil
}

// searchHolder returns the first index whose endpoint is not before ep.
func searchHolder(list []holder, ep block.EndpointID) int {
	lo, hi := 0, len(list)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if list[mid].endpoint() < ep {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// put enters a new node. The table doubles when three quarters are used.
func (t *table) put(nd node) {
	if 4*(t.used+1) > 3*len(t.nodes) {
		old := t.nodes
		t.nodes = make([]node, max(minNodes, 2*len(old)))
		for i := range old {
			if old[i].key != 0 {
				t.nodes[t.unused(old[i].key)] = old[i]
			}
		}
	}
	t.nodes[t.unused(nd.key)] = nd
	t.used++
}

// unused returns where a key that is not there belongs.
func (t *table) unused(key block.Key) int {
	i := t.home(key)
	for t.nodes[i].key != 0 {
		i = (i + 1) & (len(t.nodes) - 1)
	}
	return i
}

// take removes a node, and moves those behind it that it kept from their home.
func (t *table) take(nd *node) {
	mask := len(t.nodes) - 1
	gap := t.home(nd.key)
	for &t.nodes[gap] != nd {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; t.nodes[i].key != 0; i = (i + 1) & mask {
		// The node at i may move unless its home lies behind the gap.
		if (i-t.home(t.nodes[i].key))&mask >= (i-gap)&mask {
			t.nodes[gap] = t.nodes[i]
			gap = i
		}
	}
	t.nodes[gap] = node{}
	t.used--
}

// insert adds a second or later holder.
func (t *table) insert(nd *node, h holder, place uint32) {
	if int(nd.n) == 1<<nd.class {
		t.resize(nd, nd.class+1)
	}
	nd.n++
	list, places := t.list(nd), t.places[nd.one:][:nd.n]
	i := searchHolder(list[:nd.n-1], h.endpoint())
	copy(list[i+1:], list[i:])
	copy(places[i+1:], places[i:])
	list[i], places[i] = h, place
}

// cut removes the holder ep, and the node with its last holder.
func (t *table) cut(nd *node, ep block.EndpointID) {
	if nd.n == 1 {
		t.take(nd)
		return
	}
	list, places := t.list(nd), t.places[nd.one:][:nd.n]
	i := searchHolder(list, ep)
	copy(list[i:], list[i+1:])
	copy(places[i:], places[i+1:])
	nd.n--
	switch {
	case nd.n == 1:
		t.resize(nd, 0)
	case int(nd.n) <= 1<<nd.class>>2:
		t.resize(nd, nd.class-1)
	}
}

// resize moves the holders of nd to a list of another class with enough space.
func (t *table) resize(nd *node, class uint8) {
	was, start, n := nd.class, int(nd.one), int(nd.n)
	if class == 0 {
		nd.one, nd.place, nd.class = t.lists[start], t.places[start], 0
		t.release(start, was)
		return
	}
	to := t.alloc(class)
	if was == 0 {
		t.lists[to], t.places[to] = nd.one, nd.place
	} else {
		copy(t.lists[to:], t.lists[start:start+n])
		copy(t.places[to:], t.places[start:start+n])
		t.release(start, was)
	}
	nd.one, nd.class = holder(to), class
}

// alloc returns the start of a list of 2^class places.
func (t *table) alloc(class uint8) int {
	if head := t.free[class]; head != 0 {
		start := int(head - 1)
		t.free[class] = uint32(t.lists[start])
		return start
	}
	start, size := len(t.lists), 1<<class
	t.lists = append(t.lists, make([]holder, size)...)
	t.places = append(t.places, make([]uint32, size)...)
	return start
}

func (t *table) release(start int, class uint8) {
	t.lists[start] = holder(t.free[class])
	t.free[class] = uint32(start + 1)
}
