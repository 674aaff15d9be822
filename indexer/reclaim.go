package indexer

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/internal/names"
)

// A removed source is released in steps, so that a writer's time does not depend on the size of
// another source. A number of entries is released immediately, and more with each later write, for
// a few sources at a time. The immediate number is limited by a budget that writes refill, so that
// a whole pool can be removed under one lock.
const (
	reclaimFirst = 1 << 14
	reclaimNext  = 1 << 9
	reclaimMany  = 4
	reclaimTidy  = 1 << 12
)

// grave is a hidden source whose entries are not all released. Its slot is not reused before.
type grave struct {
	s  *source
	at int // position in the directory of its names
}

// clear hides a source from readers and begins to release its entries.
func (x *Index) clear(s *source) {
	if !s.staged {
		x.setSlot(s.slot, slotOwner{source: s.name})
		x.remove(s)
	}
	x.inter(s)
}

// inter schedules the release of hidden source s.
func (x *Index) inter(s *source) {
	x.nodes.release(s.cursor)
	x.dying = append(x.dying, &grave{s: s})
	x.reclaimRemoved()
}

// successor returns the empty source that replaces a cleared one. Its groups keep their rules.
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

// Reclaim continues releasing removed sources. Call it periodically if there may be no writes for
// long.
func (x *Index) Reclaim() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stock = min(x.stock+reclaimTidy, reclaimFirst)
	x.reclaimRemoved()
	x.advance()
}

// reclaimRemoved releases dying sources in whole segments as far as the stock permits. An overdraft is
// deducted from later refills.
func (x *Index) reclaimRemoved() {
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
