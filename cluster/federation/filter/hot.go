package filter

import (
	"sync"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// MaxHot bounds a hot set, in blocks.
const MaxHot = 16 << 20

// Hot remembers the blocks of the prompts that a pool has been sent of late: those
// asked for longest ago are forgotten first, about, when there are more than it may
// hold. What is entered or forgotten changes the filters of all Sources that follow it.
// It is safe for concurrent use; a call may take a second where millions of blocks are
// moved, so no request should wait for one.
type Hot struct {
	mu      sync.Mutex
	ring    []entry  // in the order of their coming, but where one took the place of another
	index   []uint32 // open addressing, linear: places in ring, counted from 1; 0 is free
	most    int
	hand    int // in ring: the next to be looked at when one must go
	sources []*Source
	evicted uint64
	changes []change // that some source has not followed
	before  uint64   // changes before these
}

// change is a block that came to a place of the ring, of n then, or went from it: n is 0.
// Sources follow many at a time: one after the other they would each have their table fetched
// into the processor's cache for every block.
type change struct {
	key      block.Key
	place, n uint32
}

// maxChanges is about how many changes are kept for sources.
const maxChanges = 4096

// note keeps a change until all sources have followed it.
func (h *Hot) note(c change) {
	if len(h.sources) > 0 {
		h.changes = append(h.changes, c)
	}
}

// bound has all sources follow when there is much to follow. The ring has to be as the changes
// say: filters are made of it.
func (h *Hot) bound() {
	if len(h.changes) >= maxChanges {
		h.settle()
	}
}

// settle has all sources follow.
func (h *Hot) settle() {
	for _, s := range h.sources {
		s.follow(h)
	}
	h.before += uint64(len(h.changes))
	h.changes = h.changes[:0]
}

type entry struct {
	key  block.Key
	used bool // asked for since the hand passed
}

// NewHot returns an empty set of at most so many blocks.
func NewHot(most int) *Hot {
	h := &Hot{index: make([]uint32, 1<<10)}
	h.SetMost(most)
	return h
}

// SetMost changes how many blocks it may hold, such as when the pool's caches grow.
func (h *Hot) SetMost(most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.most = min(max(most, 1), MaxHot)
	if len(h.ring) > h.most {
		defer h.again() // places change
	}
	for len(h.ring) > h.most {
		h.bound()
		at, last := h.oldest(), len(h.ring)-1
		h.forget(at)
		if at != last {
			h.index[h.find(h.ring[last].key)] = uint32(at + 1)
			h.ring[at] = h.ring[last]
		}
		h.ring = h.ring[:last]
	}
	h.hand %= max(len(h.ring), 1)
}

// Most returns how many blocks it may hold.
func (h *Hot) Capacity() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.most
}

// again begins filters anew that are being made.
func (h *Hot) again() {
	h.settle()
	for _, s := range h.sources {
		if s.next != nil {
			s.rebuild(h)
		}
	}
}

// Touch enters the blocks of a prompt, or notes that they were asked for again, and
// returns how many of the leading ones were known.
func (h *Hot) Touch(keys []block.Key) (known int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, k := range keys {
		if at := h.index[h.find(k)]; at == 0 {
			h.enter(k)
		} else if h.ring[at-1].used = true; known == i {
			known++
		}
	}
	return known
}

func (h *Hot) enter(k block.Key) {
	h.bound()
	at := len(h.ring)
	if at >= h.most {
		at = h.oldest()
		h.forget(at)
		h.ring[at] = entry{key: k}
		h.hand = (at + 1) % len(h.ring)
	} else {
		h.ring = append(h.ring, entry{key: k})
	}
	if len(h.ring) > len(h.index)/4*3 {
		h.grow(2 * len(h.index))
	}
	h.index[h.find(k)] = uint32(at + 1)
	h.note(change{k, uint32(at), uint32(len(h.ring))})
}

// Len returns how many blocks it holds.
func (h *Hot) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ring)
}

// Evicted returns how many blocks were forgotten to make room.
func (h *Hot) Evicted() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.evicted
}

// Bytes returns the memory that it takes, without its sources.
func (h *Hot) Bytes() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return 16*cap(h.ring) + 4*len(h.index)
}

// home is where the search for a key begins. Keys are hashes.
func (h *Hot) home(k block.Key) int { return int(uint64(k) & uint64(len(h.index)-1)) }

// find returns the slot of the index that has k, or the free one where it would go.
func (h *Hot) find(k block.Key) int {
	at := h.home(k)
	for h.index[at] != 0 && h.ring[h.index[at]-1].key != k {
		at = (at + 1) & (len(h.index) - 1)
	}
	return at
}

// grow makes the index larger. What is last in the ring is not in it yet.
func (h *Hot) grow(size int) {
	old := h.index
	h.index = make([]uint32, size)
	for _, place := range old {
		if place != 0 {
			h.index[h.find(h.ring[place-1].key)] = place
		}
	}
}

// oldest returns the place of the next block that was not asked for since the hand
// passed it.
func (h *Hot) oldest() int {
	for {
		h.hand %= len(h.ring)
		if !h.ring[h.hand].used {
			return h.hand
		}
		h.ring[h.hand].used = false
		h.hand++
	}
}

// forget takes what is in a place of the ring out of the index and of all filters.
func (h *Hot) forget(place int) {
	k, mask := h.ring[place].key, len(h.index)-1
	at := h.find(k)
	for next := (at + 1) & mask; h.index[next] != 0; next = (next + 1) & mask {
		home := h.home(h.ring[h.index[next]-1].key) // move up what was entered behind for lack of room
		if (next-home)&mask >= (next-at)&mask {
			h.index[at] = h.index[next]
			at = next
		}
	}
	h.index[at] = 0
	h.evicted++
	h.note(change{key: k, place: uint32(place)})
}

// attach makes a source follow the set from now on. Calls hold h.mu.
func (h *Hot) attach(s *Source) {
	h.sources = append(h.sources, s)
	s.seen = h.before + uint64(len(h.changes))
	s.rebuild(h)
}

// detach ends that. Calls hold h.mu.
func (h *Hot) detach(s *Source) {
	for i, o := range h.sources {
		if o == s {
			h.sources = append(h.sources[:i:i], h.sources[i+1:]...)
			return
		}
	}
}
