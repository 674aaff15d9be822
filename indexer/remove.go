package indexer

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/internal/names"
)

// going batches removals, so that each step overlaps the memory accesses of the whole batch.
type going struct {
	hashes [window]block.EngineHash
	kinds  [window]uint32
	spent  [window]names.Entry
	n      int
}

// removals performs the removals at the head of ops and returns their number.
func (x *Index) removals(s *source, d *block.Delta, ops []block.Op, st *ApplyStats) int {
	n, g := 0, &x.going
	for ; n < len(ops) && ops[n].Kind == block.OpRemove; n++ {
		op := &ops[n]
		kind := names.KindOf(uint8(op.Tier), op.Group)
		for _, h := range d.Hashes[op.First : op.First+op.N] {
			g.hashes[g.n], g.kinds[g.n] = h, kind
			if g.n++; g.n == window {
				x.removeGoing(s, st)
			}
		}
	}
	x.removeGoing(s, st)
	return n
}

func (x *Index) removeGoing(s *source, st *ApplyStats) {
	g := &x.going
	hashes := g.hashes[:g.n]
	g.n = 0
	var r reads
	x.readNames(&r, s, hashes)
	if s.names.Repeats {
		for i, h := range hashes {
			x.removeAll(s, h, g.kinds[i], st)
		}
		return
	}
	n := 0
	for i, h := range hashes {
		e, found := s.names.LowerOnly(uint64(h), g.kinds[i])
		if !found {
			st.UnknownRemove++
			continue
		}
		st.Removed++
		if e.Count() == 0 {
			g.spent[n] = e
			n++
		}
	}
	x.warmNodes(g.spent[:n])
	for i := range g.spent[:n] {
		x.release(s, &g.spent[i])
	}
}

// removeAll removes one copy of every node named by a hash; the source drops blocks without copies.
// One hash can name several nodes (if an engine's hashes omit the adapter). It is unknown which one
// was meant, so all are decremented.
func (x *Index) removeAll(s *source, h block.EngineHash, kind uint32, st *ApplyStats) {
	found, spent := s.names.Lower(uint64(h), kind)
	if !found {
		st.UnknownRemove++
		return
	}
	st.Removed++
	if !spent {
		return
	}
	for e := s.names.Unreferenced(uint64(h)); e != nil; e = s.names.Unreferenced(uint64(h)) {
		gone := *e
		s.names.Remove(gone)
		x.release(s, &gone)
	}
}
