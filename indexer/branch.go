package indexer

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/indexer/internal/lockfree"
)

// A node with many children keeps them in a hash table instead of a list. The
// table is shared by all branch points and holds the roots too; it is divided
// into segments that grow one at a time. Readers probe it without locks and
// check the key of the node that they find.
const (
	branchSegments = 256
	branchAt       = 8   // children that make a branch
	maxForms       = 192 // distinct forms below one branch
	tombstone      = 1   // never a key: child keys have the top bit, root keys are odd and wide
)

type branchSlot struct {
	key  atomic.Uint64
	node atomic.Uint32
}

type branchSegment struct {
	slots []branchSlot    // length is a power of two
	seen  []atomic.Uint64 // seenBits bits for each slot; of every key that was put, one is set
	used  int             // live and tombstones
	live  int
}

// A walk asks for one key per form, of which one is there at most. At eight
// bits a slot, a tenth of the others need a look at the slots.
const seenBits = 8

func newBranchSegment(size int) *branchSegment {
	return &branchSegment{slots: make([]branchSlot, size), seen: make([]atomic.Uint64, max(1, size*seenBits/64))}
}

func (s *branchSegment) bit(k uint64) (word *atomic.Uint64, bit uint64) {
	return &s.seen[k>>22&uint64(len(s.seen)-1)], 1 << (k >> 16 & 63)
}

// may reports whether k can be in s.
func (s *branchSegment) may(k uint64) bool {
	word, bit := s.bit(k)
	return word.Load()&bit != 0
}

type branchTable struct {
	segs [branchSegments]atomic.Pointer[branchSegment]
	n    int
	size int
}

func (t *branchTable) init() {
	for i := range t.segs {
		t.segs[i].Store(newBranchSegment(8))
	}
	t.size = 8 * branchSegments
}

func (t *branchTable) seg(k uint64) *atomic.Pointer[branchSegment] { return &t.segs[k>>48&0xff] }

// find returns the node of a root key, or 0.
func (t *branchTable) find(k uint64) uint32 {
	id, _ := t.seg(k).Load().next(k, k)
	return id
}

// next returns the first node of key k from slot i on, and the slot behind it.
// A key can have several: blocks below a non-canonical one repeat keys.
func (s *branchSegment) next(k, i uint64) (node uint32, after uint64) {
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
	word, bit := s.bit(k)
	word.Store(word.Load() | bit)
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
	s := newBranchSegment(size)
	for i := range old.slots {
		if k := old.slots[i].key.Load(); k > tombstone {
			s.put(k, old.slots[i].node.Load())
		}
	}
	return s
}

func (t *branchTable) remove(k uint64, node uint32) {
	s := t.seg(k).Load()
	for id, i := s.next(k, k); id != 0; id, i = s.next(k, i) {
		if id == node {
			s.slots[(i-1)&uint64(len(s.slots)-1)].key.Store(tombstone)
			s.live--
			t.n--
			return
		}
	}
}

// branch is what a branch point knows of its children: their forms, rising.
type branch struct {
	forms  atomic.Pointer[[]form]
	counts []formCount // writers only, same order
	n      int
}

type formCount struct {
	form form
	n    int
}

func (b *branch) search(f form) (int, bool) {
	return slices.BinarySearchFunc(b.counts, f, func(c formCount, f form) int { return cmp.Compare(c.form, f) })
}

// add notes a child of a form; it reports false when there are too many forms.
func (b *branch) add(f form) bool {
	i, found := b.search(f)
	if !found {
		if len(b.counts) >= maxForms {
			return false
		}
		b.counts = slices.Insert(b.counts, i, formCount{form: f})
		b.publish()
	}
	b.counts[i].n++
	b.n++
	return true
}

func (b *branch) drop(f form) {
	i, found := b.search(f)
	if !found {
		return
	}
	b.n--
	if b.counts[i].n--; b.counts[i].n == 0 {
		b.counts = slices.Delete(b.counts, i, i+1)
		b.publish()
	}
}

func (b *branch) publish() {
	l := make([]form, len(b.counts))
	for i, c := range b.counts {
		l[i] = c.form
	}
	b.forms.Store(&l)
}

// branchList names branches by small integers.
type branchList struct {
	table lockfree.Table[branch]
	free  []uint32
	limbo lockfree.Limbo
	n     int
}

func (l *branchList) init() {
	l.table.Init()
	l.table.Add(nil) // index 0: no branch
}

func (l *branchList) get(i uint32) *branch { return l.table.Get(i) }

func (l *branchList) add(b *branch) uint32 {
	l.n++
	if k := len(l.free); k > 0 {
		i := l.free[k-1]
		l.free = l.free[:k-1]
		l.table.Put(i, b)
		return i
	}
	return l.table.Add(b)
}

// drop retires a branch: readers may still look at it for a while.
func (l *branchList) drop(e *lockfree.Epochs, i uint32) {
	l.n--
	l.limbo.Retire(e, i)
}

func (l *branchList) reclaim(e *lockfree.Epochs) {
	l.limbo.Reclaim(e, func(i uint32) {
		l.table.Put(i, nil)
		l.free = append(l.free, i)
	})
}
