package indexer

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/internal/names"
)

// What a source held is released in steps, so that no writer waits for the size of
// another's source: so many entries at once when it goes, and so many more with everything that
// is written afterwards, for each of a few that are going. What goes at once is of a stock that
// writes fill again, so that a whole pool can go under one lock.
const (
	buryFirst = 1 << 14
	buryNext  = 1 << 9
	buryMany  = 4
	buryTidy  = 1 << 12
)

// grave is a source that readers do not see any more and whose entries are not all
// released. Its slot is not given out before they are.
type grave struct {
	s  *source
	at int // position in the directory of its names
}

// clear hides a source from readers and begins to release all that it holds.
func (x *Index) clear(s *source) {
	if !s.staged {
		x.setSlot(s.slot, slotOwner{source: s.name})
		x.remove(s)
	}
	x.inter(s)
}

// inter has s, which is hidden, released.
func (x *Index) inter(s *source) {
	x.nodes.release(s.cursor)
	x.dying = append(x.dying, &grave{s: s})
	x.bury()
}

// successor returns the empty source that takes the place of one that was cleared.
// Its groups have the rules that they had.
func (x *Index) successor(s *source) (next *source) {
	if s.staged {
		next = x.newSource(s.name, names.New(), true)
	} else {
		next = x.source(s.name)
	}
	for i := range s.rules {
		x.enterRule(next, s.rules[i].Rule)
	}
	return next
}

// Reclaim goes on releasing what has gone. Call it now and then where nothing may be written for
// long.
func (x *Index) Reclaim() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stock = min(x.stock+buryTidy, buryFirst)
	x.bury()
	x.advance()
}

// bury releases what is dying as far as the stock goes, by whole segments: what is over it is
// taken off what comes.
func (x *Index) bury() {
	for x.stock > 0 && len(x.dying) > 0 {
		g := x.dying[0]
		slots, n, next := g.s.names.Strip(g.at)
		if slots == nil {
			x.retired.Retire(&x.epoch, g.s.slot)
			for i := range g.s.rules {
				x.retired.Retire(&x.epoch, g.s.rules[i].slot)
			}
			x.dying[0] = nil
			x.dying = x.dying[1:]
			continue
		}
		g.at = next
		for i := range slots {
			if e := &slots[i]; e.Meta != 0 {
				x.drop(g.s.slotOfKind(e.Kind()), x.nodes.at(e.Node), e.Node, block.Tier(e.Tier()))
			}
		}
		x.stock -= max(n, 1)
	}
}
