package indexer

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/indexer/internal/lockfree"
)

// A node with many children keeps them in a hash table, shared by all branch points, instead of a
// list. The table also holds the roots.
const (
	branchAt = 8   // children that make a branch
	maxForms = 192 // distinct forms below one branch
)

// branch is the set of forms of a branch point's children, ascending.
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

// add counts a child of a form. It returns false if there are too many forms.
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

// branchList maps small integers to branches.
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

// drop retires a branch. Readers may still use it for a while.
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
