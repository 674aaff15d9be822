package indexer

import (
	"slices"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// mostAhead is the maximum number of tokens that engines hash beyond a block (EAGLE, MTP): the
// first block of a prompt is longer by that much.
const mostAhead = 8

// cuts holds the token ends of a prompt and the position of a walk. Blocks either hold these tokens
// or the same text tokenized differently.
type cuts struct {
	ends   []int32
	passed int   // tokens passed, including those ahead of the last block
	at     int32 // bytes
	begun  bool
}

func cutsOf(q *block.Query) cuts { return cuts{ends: q.Tokens} }

// fits returns the position after the block of n, and whether that block holds the next tokens.
func (c cuts) fits(n *node) (next cuts, ok bool) {
	size := int(n.tokens())
	next = cuts{ends: c.ends, passed: c.passed + size, at: c.at + int32(n.length.Load()), begun: true}
	if c.begun {
		return next, next.passed <= len(c.ends) && c.ends[next.passed-1] == next.at
	}
	i, ok := slices.BinarySearch(c.ends, next.at)
	next.passed = i + 1
	return next, ok && next.passed >= size && next.passed <= size+mostAhead
}

// keepCut removes children from a fork that do not hold the prompt's next tokens. Of two with the
// same text, the canonical one remains.
func (x *Index) keepCut(h block.Words, f *fork, l *lane) {
	for i := f.n - 1; i >= 0; i-- {
		n := f.node[i]
		next, ok := l.cuts.fits(n)
		// One block with tokens ahead may be one that is cut otherwise.
		if ok && !l.cuts.begun && next.passed > int(n.tokens()) {
			ok = x.goesOn(h, n, f.key[i], l.rest, next)
		}
		if !ok {
			f.drop(i)
		}
	}
	for i := f.n - 1; f.n > 1 && i >= 0; i-- {
		if f.node[i].apart() && slices.ContainsFunc(f.node[:f.n], func(n *node) bool {
			return !n.apart() && n.length.Load() == f.node[i].length.Load()
		}) {
			f.drop(i)
		}
	}
}

// goesOn reports whether n's block is followed by one that holds the next tokens.
func (x *Index) goesOn(h block.Words, n *node, key block.Key, rest []byte, c cuts) bool {
	var below fork
	x.children(h, n, key, rest[n.length.Load():], &below)
	return slices.ContainsFunc(below.node[:below.n], func(n *node) bool {
		_, ok := c.fits(n)
		return ok
	})
}
