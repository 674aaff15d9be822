package filter

import (
	"sync"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// MaxHot is the largest size of a hot set, in blocks.
const MaxHot = 16 << 20

// Hot is the set of blocks of a pool's recent prompts. When it is full, it evicts approximately the
// least recently requested blocks. Changes update the filters of all attached Sources. Safe for
// concurrent use. A call may take a second when millions of blocks move, so no request should wait
// for one.
type Hot struct {
	mu      sync.Mutex
	ring    []entry  // in insertion order, with replacements in place
	index   []uint32 // open addressing, linear: positions in ring plus 1; 0 is free
	most    int
	hand    int // position in ring of the next eviction candidate
	sources []*Source
	evicted uint64
	changes []change // not yet applied by some source
	before  uint64   // number of changes before these
}

// change is a block that was stored at a position of the ring, which then had n entries, or was
// removed from it (n is 0). Sources apply changes in batches. One by one, each block would pull
// every source's table into the CPU cache.
type change struct {
	key      block.Key
	place, n uint32
}

// maxChanges is about how many changes are kept for sources.
const maxChanges = 4096

// note keeps a change until all sources have applied it.
func (h *Hot) note(c change) {
	if len(h.sources) > 0 {
		h.changes = append(h.changes, c)
	}
}

// bound makes all sources apply the changes if there are many. The ring must already reflect the
// changes, because filters are rebuilt from it.
func (h *Hot) bound() {
	if len(h.changes) >= maxChanges {
		h.settle()
	}
}

// settle makes all sources apply the changes.
func (h *Hot) settle() {
	for _, s := range h.sources {
		s.follow(h)
	}
	h.before += uint64(len(h.changes))
	h.changes = h.changes[:0]
}

type entry struct {
	key  block.Key
	used bool // requested since the hand passed
}

// NewHot returns an empty set of at most most blocks.
func NewHot(most int) *Hot {
	h := &Hot{index: make([]uint32, 1<<10)}
	h.SetMost(most)
	return h
}

// SetMost changes the size limit, for example when the pool's caches grow.
func (h *Hot) SetMost(most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.most = min(max(most, 1), MaxHot)
	if len(h.ring) > h.most {
		defer h.again() // positions change
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

// Capacity returns the size limit.
func (h *Hot) Capacity() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.most
}

// again restarts filters that are being built.
func (h *Hot) again() {
	h.settle()
	for _, s := range h.sources {
		if s.next != nil {
			s.rebuild(h)
		}
	}
}

// Touch adds the blocks of a prompt or marks them as requested. It returns how many leading blocks
// were already in the set.
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

// Len returns the number of blocks.
func (h *Hot) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ring)
}

// Evicted returns how many blocks were evicted to make room.
func (h *Hot) Evicted() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.evicted
}

// Bytes returns the memory of the set without its sources.
func (h *Hot) Bytes() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return 16*cap(h.ring) + 4*len(h.index)
}

// home is where the search for a key starts. Keys are hashes, so no further hashing is needed.
func (h *Hot) home(k block.Key) int { return int(uint64(k) & uint64(len(h.index)-1)) }

// find returns the index slot of k, or the free slot where it would go.
func (h *Hot) find(k block.Key) int {
	at := h.home(k)
	for h.index[at] != 0 && h.ring[h.index[at]-1].key != k {
		at = (at + 1) & (len(h.index) - 1)
	}
	return at
}

// grow enlarges the index. The last entry of the ring is not in the index yet.
func (h *Hot) grow(size int) {
	old := h.index
	h.index = make([]uint32, size)
	for _, place := range old {
		if place != 0 {
			h.index[h.find(h.ring[place-1].key)] = place
		}
	}
}

// oldest returns the position of the next block that was not requested since the hand passed it.
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

// forget removes the block at a position from the index and from all filters.
func (h *Hot) forget(place int) {
	k, mask := h.ring[place].key, len(h.index)-1
	at := h.find(k)
	for next := (at + 1) & mask; h.index[next] != 0; next = (next + 1) & mask {
		home := h.home(h.ring[h.index[next]-1].key) // move up entries that were displaced by this one
		if (next-home)&mask >= (next-at)&mask {
			h.index[at] = h.index[next]
			at = next
		}
	}
	h.index[at] = 0
	h.evicted++
	h.note(change{key: k, place: uint32(place)})
}

// attach makes a source follow the set. The caller holds h.mu.
func (h *Hot) attach(s *Source) {
	h.sources = append(h.sources, s)
	s.seen = h.before + uint64(len(h.changes))
	s.rebuild(h)
}

// detach ends that. The caller holds h.mu.
func (h *Hot) detach(s *Source) {
	for i, o := range h.sources {
		if o == s {
			h.sources = append(h.sources[:i:i], h.sources[i+1:]...)
			return
		}
	}
}
