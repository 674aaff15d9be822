package names

// Short is the part of a mixed engine hash in short forms. It selects the segment and, except for
// the last bits, the start of the search. A table of whole hashes can therefore be searched by
// short names.
type Short uint32

const shortHalf = 16 // bits

// ShortOf is the short name of a hash.
func ShortOf(h uint64) Short { return shortOf(mixHash(h)) }

func shortOf(m uint64) Short {
	return Short(m>>(64-shortHalf)<<shortHalf | m>>(32-shortHalf)&(1<<shortHalf-1))
}

// mixed returns the smallest mixed hash with the name. The largest has all bits of the second half
// of each word set.
func (n Short) mixed() uint64 {
	return uint64(n>>shortHalf)<<(64-shortHalf) | uint64(n&(1<<shortHalf-1))<<(32-shortHalf)
}

// Found is the result of a search by short name.
type Found uint8

// Results of a search by short name.
const (
	None Found = iota // no held hash has the name
	One               // one hash has it
	Many              // several hashes have it, or the table cannot decide
)

// ByShort returns an entry of the hash with a short name, if there is exactly one.
func (a *Table) ByShort(n Short) (e *Entry, is Found) {
	if a.depth > shortHalf {
		return nil, Many
	}
	m := n.mixed()
	s := a.segment(m)
	i, last := s.home(m), s.home(m|(1<<(32-shortHalf)-1))
	for passed := false; ; i = s.after(i) {
		// Entries of the name are between the first home and the first gap after the last.
		passed = passed || i == last
		c := &s.slots[i]
		if c.Meta == 0 {
			if passed {
				return e, is
			}
			continue
		}
		if shortOf(mixHash(c.Hash)) != n {
			continue
		}
		if is == One && c.Hash != e.Hash {
			return nil, Many
		}
		e, is = c, One
	}
}

// TouchShort prefetches the lines that ByShort needs.
func (a *Table) TouchShort(n Short) uint32 {
	if a.depth > shortHalf {
		return 0
	}
	m := n.mixed()
	s := a.segment(m)
	i := s.home(m)
	return s.slots[i].Node + s.slots[s.wrap(i+bucket)].Node
}
