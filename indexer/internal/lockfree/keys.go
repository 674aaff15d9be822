package lockfree

import "sync/atomic"

const (
	segments  = 256
	tombstone = 1 // never a key
)

// Keys is a hash table from keys to nodes, divided into segments that grow separately. Readers
// probe it without locks and verify the key of the node found. 0 and 1 are not valid keys, and a
// key can have several nodes. There is one writer.
type Keys struct {
	segs [segments]atomic.Pointer[Segment]
	n    int
	size int
}

type keySlot struct {
	key  atomic.Uint64
	node atomic.Uint32
}

// Segment is a part of Keys.
type Segment struct {
	slots []keySlot       // length is a power of two
	seen  []atomic.Uint64 // filter with seenBits bits per slot; one is set for every inserted key
	used  int             // live slots and tombstones
	live  int
}

// A walk looks up one key per form, at most one of which exists. With eight bits per slot, a tenth
// of the others reach the slots.
const seenBits = 8

func newSegment(size int) *Segment {
	return &Segment{slots: make([]keySlot, size), seen: make([]atomic.Uint64, max(1, size*seenBits/64))}
}

func (s *Segment) bit(k uint64) (word *atomic.Uint64, bit uint64) {
	return &s.seen[k>>22&uint64(len(s.seen)-1)], 1 << (k >> 16 & 63)
}

// MayContain reports whether k can be in s.
func (s *Segment) MayContain(k uint64) bool {
	word, bit := s.bit(k)
	return word.Load()&bit != 0
}

// Init empties the table. It must be called first.
func (t *Keys) Init() {
	for i := range t.segs {
		t.segs[i].Store(newSegment(8))
	}
	t.size = 8 * segments
}

func (t *Keys) seg(k uint64) *atomic.Pointer[Segment] { return &t.segs[k>>48&0xff] }

// Len returns the number of nodes.
func (t *Keys) Len() int { return t.n }

// Bytes returns the memory of the table.
func (t *Keys) Bytes() int { return t.size * (16 + seenBits/8) }

// Segment returns the segment of a key. Later insertions may use another one.
func (t *Keys) Segment(k uint64) *Segment { return t.seg(k).Load() }

// Find returns a node of a key, or 0.
func (t *Keys) Find(k uint64) uint32 {
	id, _ := t.seg(k).Load().Next(k, k)
	return id
}

// Next returns the first node of key k from slot i on and the next slot; 0 if there is none. A
// search begins at slot k.
func (s *Segment) Next(k, i uint64) (node uint32, after uint64) {
	mask := uint64(len(s.slots) - 1)
	for ; ; i++ {
		switch s.slots[i&mask].key.Load() {
		case k:
			return s.slots[i&mask].node.Load(), i + 1
		case 0:
			return 0, i
		}
	}
}

// Insert adds a node of a key.
func (t *Keys) Insert(k uint64, node uint32) {
	p := t.seg(k)
	s := p.Load()
	if (s.used+1)*4 > len(s.slots)*3 {
		s = t.rebuild(s)
		p.Store(s)
	}
	s.put(k, node)
	t.n++
}

func (s *Segment) put(k uint64, node uint32) {
	mask := uint64(len(s.slots) - 1)
	i := k & mask
	for s.slots[i].key.Load() != 0 {
		i = (i + 1) & mask
	}
	word, bit := s.bit(k)
	word.Store(word.Load() | bit)
	s.slots[i].node.Store(node)
	s.slots[i].key.Store(k)
	s.used++
	s.live++
}

func (t *Keys) rebuild(old *Segment) *Segment {
	size := 8
	for size < 2*(old.live+1) {
		size *= 2
	}
	t.size += size - len(old.slots)
	s := newSegment(size)
	for i := range old.slots {
		if k := old.slots[i].key.Load(); k > tombstone {
			s.put(k, old.slots[i].node.Load())
		}
	}
	return s
}

// Remove removes a node of a key.
func (t *Keys) Remove(k uint64, node uint32) {
	s := t.seg(k).Load()
	for id, i := s.Next(k, k); id != 0; id, i = s.Next(k, i) {
		if id == node {
			s.slots[(i-1)&uint64(len(s.slots)-1)].key.Store(tombstone)
			s.live--
			t.n--
			return
		}
	}
}
