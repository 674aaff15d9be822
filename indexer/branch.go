package indexer

import (
	"slices"
	"sync/atomic"
)

// A node with many children keeps them in a hash table instead of a list. The
// table is shared by all branch points and holds the roots too; it is divided
// into segments that grow one at a time. Readers probe it without locks and
// check the key of the node that they find.
const (
	branchSegments = 256
	branchAt       = 8   // children that make a branch
	maxLengths     = 192 // distinct byte lengths below one branch
	tombstone      = 1   // never a key: child keys have the top bit, root keys are odd and wide
)

type branchSlot struct {
	key  atomic.Uint64
	node atomic.Uint32
}

type branchSegment struct {
	slots []branchSlot // length is a power of two
	used  int          // live and tombstones
	live  int
}

type branchTable struct {
	segs [branchSegments]atomic.Pointer[branchSegment]
	n    int
	size int
}

func (t *branchTable) init() {
	for i := range t.segs {
		t.segs[i].Store(&branchSegment{slots: make([]branchSlot, 8)})
	}
	t.size = 8 * branchSegments
}

func (t *branchTable) seg(k uint64) *atomic.Pointer[branchSegment] { return &t.segs[k>>48&0xff] }

func (t *branchTable) find(k uint64) uint32 {
	s := t.seg(k).Load()
	mask := uint64(len(s.slots) - 1)
	for i := k & mask; ; i = (i + 1) & mask {
		switch s.slots[i].key.Load() {
		case k:
			return s.slots[i].node.Load()
		case 0:
			return 0
		}
	}
}

func (t *branchTable) insert(k uint64, node uint32) {
	p := t.seg(k)
	s := p.Load()
	if (s.used+1)*4 > len(s.slots)*3 {
		s = t.rebuild(s)
		p.Store(s)
	}
	s.put(k, node)
	t.n++
}

func (s *branchSegment) put(k uint64, node uint32) {
	mask := uint64(len(s.slots) - 1)
	i := k & mask
	for s.slots[i].key.Load() != 0 {
		i = (i + 1) & mask
	}
	s.slots[i].node.Store(node)
	s.slots[i].key.Store(k)
	s.used++
	s.live++
}

func (t *branchTable) rebuild(old *branchSegment) *branchSegment {
	size := 8
	for size < 2*(old.live+1) {
		size *= 2
	}
	t.size += size - len(old.slots)
	s := &branchSegment{slots: make([]branchSlot, size)}
	for i := range old.slots {
		if k := old.slots[i].key.Load(); k > tombstone {
			s.put(k, old.slots[i].node.Load())
		}
	}
	return s
}

func (t *branchTable) remove(k uint64) {
	s := t.seg(k).Load()
	mask := uint64(len(s.slots) - 1)
	for i := k & mask; ; i = (i + 1) & mask {
		switch s.slots[i].key.Load() {
		case k:
			s.slots[i].key.Store(tombstone)
			s.live--
			t.n--
			return
		case 0:
			return
		}
	}
}

// branch is what a branch point knows of its children: how long they are,
// the most frequent length first.
type branch struct {
	lengths atomic.Pointer[[]uint32]
	counts  []lengthCount // writers only, same order
	n       int
}

type lengthCount struct {
	length uint32
	n      int
}

// add notes a child of a length; it reports false when there are too many lengths.
func (b *branch) add(length uint32) bool {
	for i := range b.counts {
		if b.counts[i].length != length {
			continue
		}
		b.counts[i].n++
		b.n++
		if i > 0 && b.counts[i].n > 2*b.counts[i-1].n {
			b.counts[i], b.counts[i-1] = b.counts[i-1], b.counts[i]
			b.publish()
		}
		return true
	}
	if len(b.counts) >= maxLengths {
		return false
	}
	b.counts = append(b.counts, lengthCount{length, 1})
	b.n++
	b.publish()
	return true
}

func (b *branch) drop(length uint32) {
	b.n--
	for i := range b.counts {
		if b.counts[i].length != length {
			continue
		}
		if b.counts[i].n--; b.counts[i].n == 0 {
			b.counts = slices.Delete(b.counts, i, i+1)
			b.publish()
		}
		return
	}
}

func (b *branch) publish() {
	l := make([]uint32, len(b.counts))
	for i, c := range b.counts {
		l[i] = c.length
	}
	b.lengths.Store(&l)
}

// branchList names branches by small integers.
type branchList struct {
	table ptrTable[branch]
	free  []uint32
	limbo limbo
	n     int
}

func (l *branchList) init() {
	l.table.init()
	l.table.add(nil) // index 0: no branch
}

func (l *branchList) get(i uint32) *branch { return l.table.get(i) }

func (l *branchList) add(b *branch) uint32 {
	l.n++
	if k := len(l.free); k > 0 {
		i := l.free[k-1]
		l.free = l.free[:k-1]
		l.table.put(i, b)
		return i
	}
	return l.table.add(b)
}

// drop retires a branch: readers may still look at it for a while.
func (l *branchList) drop(e *epochs, i uint32) {
	l.n--
	l.limbo.retire(e, i)
}

func (l *branchList) reclaim(e *epochs) {
	l.limbo.reclaim(e, func(i uint32) {
		l.table.put(i, nil)
		l.free = append(l.free, i)
	})
}
