package indexer

import (
	"slices"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// mostAhead is how many tokens engines hash behind a block at most (EAGLE, MTP): the first
// block of a prompt is that much longer.
const mostAhead = 8

// cuts says where the tokens of a prompt end, of which a walk has passed some: blocks hold
// such tokens, or are of the same text cut otherwise.
type cuts struct {
	ends   []int32
	passed int   // tokens, those behind the last block among them
	at     int32 // bytes
	begun  bool
}

func cutsOf(q *block.Query) cuts { return cuts{ends: q.Tokens} }

// fits returns what has been passed behind the block of n if it holds the next tokens.
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

// stepCut is step for a prompt whose tokens are known.
func (x *Index) stepCut(h block.Words, parent *node, key *block.Key, rest []byte, c *cuts) (n *node, cut bool) {
	var f fork
	x.children(h, parent, *key, rest, &f)
	best, after := -1, cuts{}
	for i := range f.n {
		next, ok := c.fits(f.node[i])
		// One block with tokens ahead may be one that is cut otherwise.
		if ok && !c.begun && next.passed > int(f.node[i].tokens()) {
			ok = x.goesOn(h, &f, i, rest, next)
		}
		if ok && (best < 0 || f.node[best].apart() || !c.begun && next.passed < after.passed && !f.node[i].apart()) {
			best, after = i, next
		}
	}
	if best < 0 {
		return nil, f.cut
	}
	*key, *c = f.key[best], after
	return f.node[best], f.cut
}

// goesOn reports whether a block follows that of f.node[i] which holds the next tokens.
func (x *Index) goesOn(h block.Words, f *fork, i int, rest []byte, c cuts) bool {
	var below fork
	x.children(h, f.node[i], f.key[i], rest[f.node[i].length.Load():], &below)
	return slices.ContainsFunc(below.node[:below.n], func(n *node) bool {
		_, ok := c.fits(n)
		return ok
	})
}
