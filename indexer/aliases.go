package indexer

import "slices"

// aliases maps the engine hashes of one source to nodes. It is an extendible
// hash table whose segments grow by a fifth or less and then split, so that the
// load stays between 0.6 and 0.75 at every size and no insertion moves more
// than one segment. Writers only.
type aliases struct {
	dir      []*segment // indexed by the top bits of the mixed hash
	depth    uint8
	n        int
	segments int
	slots    int
	repeats  bool // some hash has, or had, more than one entry
	frozen   int  // readers of slots as they were
	gen      uint32
}

const (
	segmentMin  = 256
	segmentHalf = 2560 // slots of each half after a split
	segmentMax  = 4096
	bucket      = 4 // entries of one cache line, where a search begins
)

// entry says that the source holds node under an engine hash, in a tier, for a
// group, count times.
type entry struct {
	hash EngineHash
	node uint32
	meta uint32 // count<<16 | group<<8 | taken | tier; 0 is an empty slot
}

const (
	taken = 0x80
	one   = 1 << 16 // one copy
)

type segment struct {
	slots []entry
	n     int
	depth uint8
	gen   uint32 // the slots are newer than what was frozen before it
}

const segmentBytes = 48 // header and directory entry

// freeze returns the slots of all segments, which stay as they are until thaw.
// It copies no entries.
func (a *aliases) freeze() [][]entry {
	a.frozen++
	a.gen++
	out := make([][]entry, 0, a.segments)
	a.each(func(s *segment) { out = append(out, s.slots) })
	return out
}

// thaw ends what one freeze began.
func (a *aliases) thaw() { a.frozen-- }

// own has s changed where nobody else looks. Whoever writes to slots that may be
// frozen calls it before it searches them.
func (a *aliases) own(s *segment) {
	if a.frozen > 0 && s.gen != a.gen {
		s.slots, s.gen = slices.Clone(s.slots), a.gen
	}
}

func mixHash(h EngineHash) uint64 { return fold(uint64(h)^0xa0761d6478bd642f, 0xe7037ed1a0b428db) }

// entryMeta is the kind of an entry: its tier and group.
func entryMeta(tier Tier, group uint8) uint32 { return uint32(group)<<8 | taken | uint32(tier) }

func (e *entry) count() uint32 { return e.meta >> 16 }
func (e *entry) kind() uint32  { return e.meta & 0xffff }
func (e *entry) tier() Tier    { return tierOf(e.meta) }

func tierOf(kind uint32) Tier { return Tier(kind & 0x7f) }

func newAliases() *aliases {
	return &aliases{dir: []*segment{{slots: make([]entry, segmentMin)}}, segments: 1, slots: segmentMin}
}

// sized returns an empty table with room for n entries.
func sized(n int) *aliases {
	const usual = segmentMax * 5 / 8 // entries of a segment, at most
	a := &aliases{}
	for n>>a.depth > usual {
		a.depth++
	}
	a.segments = 1 << a.depth
	// Segments are not filled evenly: some have a tenth more than others.
	slots := max(segmentMin, (n>>a.depth)*3/2/bucket*bucket)
	a.dir = make([]*segment, a.segments)
	for i := range a.dir {
		a.dir[i] = &segment{slots: make([]entry, slots), depth: a.depth}
	}
	a.slots = slots * a.segments
	return a
}

func (a *aliases) segment(m uint64) *segment { return a.dir[m>>(64-a.depth)] }

// home is the slot where the search for a mixed hash begins: the first of a
// cache line, so that most searches stay in one.
func (s *segment) home(m uint64) int {
	return int(uint64(uint32(m))*uint64(len(s.slots)/bucket)>>32) * bucket
}

func (s *segment) after(i int) int { return s.wrap(i + 1) }

func (s *segment) wrap(i int) int {
	if i == len(s.slots) {
		return 0
	}
	return i
}

// next returns the first entry of hash from slot i on, and the slot behind it.
func (s *segment) next(h EngineHash, i int) (*entry, int) {
	for ; s.slots[i].meta != 0; i = s.after(i) {
		if s.slots[i].hash == h {
			return &s.slots[i], s.after(i)
		}
	}
	return nil, i
}

// find begins the search for a hash.
func (a *aliases) find(h EngineHash) (s *segment, i int) {
	m := mixHash(h)
	s = a.segment(m)
	return s, s.home(m)
}

// first returns any entry of hash, or nil.
func (a *aliases) first(h EngineHash) *entry {
	s, i := a.find(h)
	return s.first(h, i)
}

// line is a cache line of entries. Those that are taken come first.
type line [bucket]entry

// line returns the line that begins at slot i.
func (s *segment) line(i int) *line { return (*line)(s.slots[i:]) }

// place returns where hash is in a line, or bucket. The compiler makes no branches of
// it; they would be as good as random.
func (l *line) place(h EngineHash) int {
	k := bucket
	if l[3].hash == h {
		k = 3
	}
	if l[2].hash == h {
		k = 2
	}
	if l[1].hash == h {
		k = 1
	}
	if l[0].hash == h {
		k = 0
	}
	return k
}

// taken returns how many entries of a line are taken.
func (l *line) taken() int {
	k := bucket
	if l[3].meta == 0 {
		k = 3
	}
	if l[2].meta == 0 {
		k = 2
	}
	if l[1].meta == 0 {
		k = 1
	}
	if l[0].meta == 0 {
		k = 0
	}
	return k
}

// first returns any entry of hash, whose home is slot i, or nil.
func (s *segment) first(h EngineHash, i int) *entry {
	l := s.line(i)
	if k := l.place(h); k < bucket && l[k].meta != 0 {
		return &l[k]
	}
	e, _ := s.next(h, i)
	return e
}

// lower takes one from the count of every entry of (hash, kind) and reports
// whether there was one.
func (a *aliases) lower(h EngineHash, kind uint32) (found, spent bool) {
	s, i := a.find(h)
	a.own(s)
	for e, i := s.next(h, i); e != nil; e, i = s.next(h, i) {
		if e.kind() == kind {
			e.meta -= one
			found, spent = true, spent || e.count() == 0
		}
	}
	return found, spent
}

// lowerOnly does the work of lower, and removes the entry when it is spent, in
// one search. It serves while no hash has several entries.
func (a *aliases) lowerOnly(h EngineHash, kind uint32) (e entry, found bool) {
	s, i := a.find(h)
	a.own(s)
	if k := s.line(i).place(h); k < bucket {
		i += k
	}
	for ; s.slots[i].hash != h; i = s.after(i) {
		if s.slots[i].meta == 0 {
			return entry{}, false
		}
	}
	if s.slots[i].kind() != kind || s.slots[i].meta == 0 {
		return entry{}, false
	}
	s.slots[i].meta -= one
	e = s.slots[i]
	if e.count() == 0 {
		s.vacate(i)
		a.n--
	}
	return e, true
}

// raise counts one more copy of node under (hash, kind), and reports whether it
// is the first.
func (a *aliases) raise(h EngineHash, node, kind uint32) bool {
	m := mixHash(h)
	s := a.segment(m)
	a.own(s)
	i := s.home(m)
	if l := s.line(i); l.place(h) == bucket {
		i = s.wrap(i + l.taken())
	}
	for ; s.slots[i].meta != 0; i = s.after(i) {
		e := &s.slots[i]
		if e.hash != h {
			continue
		}
		if e.node == node && e.kind() == kind {
			if e.count() < maxCount {
				e.meta += one
			}
			return false
		}
		a.repeats = true
	}
	if e := (entry{hash: h, node: node, meta: kind | one}); s.full() {
		a.insert(m, e)
	} else {
		s.slots[i] = e
		s.n++
		a.n++
	}
	return true
}

// spent returns an entry of hash whose count is zero, or nil.
func (a *aliases) spent(h EngineHash) *entry {
	s, i := a.find(h)
	for e, i := s.next(h, i); e != nil; e, i = s.next(h, i) {
		if e.count() == 0 {
			return e
		}
	}
	return nil
}

// has tells whether hash names node, of whatever kind.
func (a *aliases) has(h EngineHash, node uint32) bool {
	s, i := a.find(h)
	for e, i := s.next(h, i); e != nil; e, i = s.next(h, i) {
		if e.node == node {
			return true
		}
	}
	return false
}

// full tells that a segment must grow before it takes one more.
func (s *segment) full() bool { return (s.n+1)*4 > len(s.slots)*3 }

// insert adds an entry that is not there and whose mixed hash is m.
func (a *aliases) insert(m uint64, e entry) {
	s := a.segment(m)
	a.own(s)
	for s.full() {
		// Hashes that agree in their top bits (a hostile stream) must not double the directory for ever.
		if len(s.slots) < segmentMax || s.depth == a.depth && len(a.dir) > 8*a.segments {
			a.enlarge(s)
		} else {
			a.split(m)
			s = a.segment(m)
		}
	}
	s.put(m, e)
	a.n++
}

func (s *segment) put(m uint64, e entry) {
	i := s.home(m)
	for s.slots[i].meta != 0 {
		i = s.after(i)
	}
	s.slots[i] = e
	s.n++
}

func (a *aliases) enlarge(s *segment) {
	old := s.slots
	step := max(256, len(old)/(8*bucket)*bucket)
	if len(old) < 1280 {
		step = 64
	}
	s.slots, s.n, s.gen = make([]entry, len(old)+step), 0, a.gen
	a.slots += step
	for i := range old {
		if old[i].meta != 0 {
			s.put(mixHash(old[i].hash), old[i])
		}
	}
}

// split divides the segment that m falls into.
func (a *aliases) split(m uint64) {
	old := a.segment(m)
	if old.depth == a.depth {
		dir := make([]*segment, 2*len(a.dir))
		for i, s := range a.dir {
			dir[2*i], dir[2*i+1] = s, s
		}
		a.dir = dir
		a.depth++
	}
	lo := &segment{depth: old.depth + 1, gen: a.gen, slots: make([]entry, segmentHalf)}
	hi := &segment{depth: old.depth + 1, gen: a.gen, slots: make([]entry, segmentHalf)}
	for _, e := range old.slots {
		if e.meta == 0 {
			continue
		}
		em, s := mixHash(e.hash), lo
		if em>>(64-lo.depth)&1 != 0 {
			s = hi
		}
		if s.n == len(s.slots)-1 { // a hostile stream: keep probing possible
			a.enlarge(s)
		}
		s.put(em, e)
	}
	span := 1 << (a.depth - old.depth)
	start := int(m>>(64-a.depth)) &^ (span - 1)
	for i := range span {
		if i < span/2 {
			a.dir[start+i] = lo
		} else {
			a.dir[start+i] = hi
		}
	}
	a.segments++
	a.slots += 2*segmentHalf - len(old.slots)
}

// remove deletes the entry that e is a copy of.
func (a *aliases) remove(e entry) {
	s, i := a.find(e.hash)
	a.own(s)
	for s.slots[i] != e {
		i = s.after(i)
	}
	s.vacate(i)
	a.n--
}

// vacate empties slot i, closing the gap so that searches need no tombstones.
func (s *segment) vacate(i int) {
	l := s.line(i &^ (bucket - 1))
	last := l.taken() - 1
	l[i&(bucket-1)] = l[last&(bucket-1)]
	i = i&^(bucket-1) + last
	for j := s.after(i); s.slots[j].meta != 0; j = s.after(j) {
		// Whatever shares a line with the gap has its home there or before.
		if i/bucket == j/bucket || s.distance(s.home(mixHash(s.slots[j].hash)), j) >= s.distance(i, j) {
			s.slots[i] = s.slots[j]
			i = j
		}
	}
	s.slots[i] = entry{}
	s.n--
}

// distance is how far slot j comes after slot i.
func (s *segment) distance(i, j int) int {
	if j -= i; j < 0 {
		return j + len(s.slots)
	}
	return j
}

// each calls f for every segment once.
func (a *aliases) each(f func(*segment)) {
	var last *segment
	for _, s := range a.dir {
		if s != last {
			f(s)
			last = s
		}
	}
}

// home returns the slot where the search for h begins.
func (a *aliases) home(h EngineHash) *entry {
	s, i := a.find(h)
	return &s.slots[i]
}

func (a *aliases) bytes() int { return a.slots*16 + a.segments*segmentBytes + 8*cap(a.dir) }
