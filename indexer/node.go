package indexer

import (
	"math/bits"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// node is one block of the trie. It has no pointers, so the garbage collector ignores it. Readers
// use the atomic fields only.
type node struct {
	key    word64
	first  word32 // first child; with branchBit, index of a branch
	next   word32 // next sibling
	set    word32 // holder set, 0 is empty
	length word32 // bytes
	meta   word32 // tokens<<8 | flags
	parent uint32 // set before a reader sees the node; 0 for a root
}

// word32 and word64 are atomic, but can be set plainly before a reader sees them: a plain store
// costs a twentieth of an atomic one.
type (
	word32 struct{ v uint32 }
	word64 struct{ v uint64 }
)

// Load is atomic.
func (w *word32) Load() uint32 { return atomic.LoadUint32(&w.v) }

// Store is atomic.
func (w *word32) Store(v uint32) { atomic.StoreUint32(&w.v, v) }

func (w *word32) init(v uint32) { w.v = v }

// Load is atomic.
func (w *word64) Load() uint64 { return atomic.LoadUint64(&w.v) }

// reset initializes an unpublished node as a block below parent, without bytes, children or
// holders.
func (n *node) reset(key uint64, parent uint32) {
	*n = node{key: word64{key}, parent: parent}
}

const (
	branchBit  = 1 << 31
	nodeBytes  = 32
	chunkShift = 13 // nodes in a chunk of the arena
	chunkNodes = 1 << chunkShift
	pageShift  = 7 // nodes in a page, the unit of locality
	pageNodes  = 1 << pageShift
	pageReuse  = pageNodes / 8 // free nodes that make a page worth filling again
	noPage     = ^uint32(0)
)

func (n *node) tokens() uint32     { return n.meta.Load() >> 8 }
func (n *node) flags() block.Flags { return block.Flags(n.meta.Load()) &^ flagExtra }

// flagExtra marks a node that has, or had, references in Index.extra.
const flagExtra block.Flags = 1 << 6

// apart reports whether no text query may pass the block. It is distinct from the canonical block
// of the same bytes, but has the same key.
func (n *node) apart() bool { return n.flags()&block.FlagNonCanonical != 0 }

// form is a property that siblings may share: their length, and whether text queries may pass.
type form uint32

func (f form) length() uint32 { return uint32(f >> 1) }
func (f form) apart() bool    { return f&1 != 0 }

func formOf(length uint32, flags block.Flags) form {
	return form(length<<1 | uint32(flags&block.FlagNonCanonical))
}

func (n *node) form() form { return formOf(n.length.Load(), n.flags()) }

// arena allocates nodes. Nodes allocated with the same cursor are adjacent, even after churn: a
// cursor fills a page before it takes the next.
type arena struct {
	chunks  atomic.Pointer[[]*[chunkNodes]node]
	pages   []pageState
	partial []uint32 // pages worth filling again
	live    int
}

type pageState struct {
	free   [pageNodes / 64]uint64
	n      uint16 // free nodes
	owned  bool   // some cursor is filling it
	listed bool   // in partial
}

func (a *arena) init() {
	chunks := []*[chunkNodes]node{}
	a.chunks.Store(&chunks)
	a.grow()
	// Node 0 is never used: remove it from its page.
	a.pages[0].free[0] &^= 1
	a.pages[0].n--
}

func (a *arena) grow() {
	old := *a.chunks.Load()
	chunks := append(old[:len(old):len(old)], new([chunkNodes]node))
	first := uint32(len(a.pages))
	for range chunkNodes / pageNodes {
		a.pages = append(a.pages, pageState{free: [2]uint64{^uint64(0), ^uint64(0)}, n: pageNodes, listed: true})
	}
	for p := uint32(len(a.pages)); p > first; p-- {
		a.partial = append(a.partial, p-1)
	}
	a.chunks.Store(&chunks)
}

// at returns the node named id.
func (a *arena) at(id uint32) *node {
	return &(*a.chunks.Load())[id>>chunkShift][id&(chunkNodes-1)]
}

// alloc returns a free node, near the one that the cursor gave before.
func (a *arena) alloc(cursor *uint32) uint32 {
	p := *cursor
	if p == noPage || a.pages[p].n == 0 {
		a.release(p)
		if len(a.partial) == 0 {
			a.grow()
		}
		p = a.partial[len(a.partial)-1]
		a.partial = a.partial[:len(a.partial)-1]
		a.pages[p].listed, a.pages[p].owned = false, true
		*cursor = p
	}
	s := &a.pages[p]
	w := 0
	for s.free[w] == 0 {
		w++
	}
	i := bits.TrailingZeros64(s.free[w])
	s.free[w] &^= 1 << i
	s.n--
	a.live++
	return p<<pageShift | uint32(w<<6|i)
}

// release ends a cursor's hold on page p.
func (a *arena) release(p uint32) {
	if p == noPage {
		return
	}
	a.pages[p].owned = false
	a.list(p)
}

func (a *arena) list(p uint32) {
	if s := &a.pages[p]; !s.owned && !s.listed && s.n >= pageReuse {
		s.listed = true
		a.partial = append(a.partial, p)
	}
}

func (a *arena) free(id uint32) {
	p := id >> pageShift
	s := &a.pages[p]
	s.free[id>>6&1] |= 1 << (id & 63)
	s.n++
	a.live--
	a.list(p)
}

func (a *arena) bytes() int {
	return len(*a.chunks.Load())*chunkNodes*nodeBytes + cap(a.pages)*24 + cap(a.partial)*4
}
