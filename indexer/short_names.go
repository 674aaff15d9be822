package indexer

// shortName is the part of a mixed engine hash that short forms carry: it holds
// what chooses the segment and, but for the last bits, where in it a search begins.
// So a table of whole hashes can be searched by it.
type shortName uint32

const (
	shortBytes = 4
	shortHalf  = 16
)

func shortOf(m uint64) shortName {
	return shortName(m>>(64-shortHalf)<<shortHalf | m>>(32-shortHalf)&(1<<shortHalf-1))
}

// mixed returns the smallest mixed hash of the name; the largest has all bits of
// the second half of each word set.
func (n shortName) mixed() uint64 {
	return uint64(n>>shortHalf)<<(64-shortHalf) | uint64(n&(1<<shortHalf-1))<<(32-shortHalf)
}

// found is what a search by short name came to.
type found uint8

const (
	foundNone found = iota // nothing of the name is held
	foundOne               // one hash has it
	foundMany              // several have it, or the table cannot tell
)

// byShort returns the hash that has a short name, if there is exactly one, and
// one of its entries.
func (a *aliases) byShort(n shortName) (e *entry, is found) {
	if a.depth > shortHalf {
		return nil, foundMany
	}
	m := n.mixed()
	s := a.segment(m)
	i, last := s.home(m), s.home(m|(1<<(32-shortHalf)-1))
	for passed := false; ; i = s.after(i) {
		// Entries of the name lie between the first home and the first gap after the last.
		passed = passed || i == last
		c := &s.slots[i]
		if c.meta == 0 {
			if passed {
				return e, is
			}
			continue
		}
		if shortOf(mixHash(c.hash)) != n {
			continue
		}
		if is == foundOne && c.hash != e.hash {
			return nil, foundMany
		}
		e, is = c, foundOne
	}
}

// touchShort reads the lines that byShort is going to need.
func (a *aliases) touchShort(n shortName) uint32 {
	if a.depth > shortHalf {
		return 0
	}
	m := n.mixed()
	s := a.segment(m)
	i := s.home(m)
	return s.slots[i].node + s.slots[s.wrap(i+bucket)].node
}

// oneKey returns the key of the blocks that a source has under a hash; false when it
// has none, or blocks of several keys.
func (x *Index) oneKey(s *source, h EngineHash) (key BlockKey, ok bool) {
	g, at := s.names.find(h)
	for e, i := g.next(h, at); e != nil; e, i = g.next(h, i) {
		k := BlockKey(x.nodes.at(e.node).key.Load())
		if ok && k != key {
			return 0, false
		}
		key, ok = k, true
	}
	return key, ok
}
