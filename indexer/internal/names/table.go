package names

import (
	"math/bits"
	"slices"
)

// Table maps the engine hashes of one source to nodes. It is an extendible hash table whose
// segments grow by at most a fifth and then split. So the load stays between 0.6 and 0.75 at every
// size, and an insertion moves at most one segment. Writers only.
type Table struct {
	dir      []*Segment // indexed by the top bits of the mixed hash
	depth    uint8
	n        int
	segments int
	slots    int
	Repeats  bool // some hash has, or had, more than one entry
	frozen   int  // number of readers of frozen slots
	gen      uint32
}

const (
	segmentMin  = 256
	segmentHalf = 2560 // slots of each half after a split
	segmentMax  = 4096
	bucket      = 4 // entries of one cache line, where a search begins
)

// Entry records that the source holds node under an engine hash, in a tier, for a group, count
// times.
type Entry struct {
	Hash uint64
	Node uint32
	Meta uint32 // count<<16 | group<<8 | taken | tier; 0 is an empty slot
}

const (
	taken = 0x80
	one   = 1 << 16 // one copy
)

// MaxCount is the largest count of an entry.
const MaxCount = 0xffff

// Segment is a part of a table.
type Segment struct {
	slots []Entry
	n     int
	depth uint8
	gen   uint32 // generation of the slots; older ones may be frozen
}

const segmentBytes = 48 // header and directory entry

// Freeze returns the slots of all segments, which stay unchanged until Unfreeze. It copies no
// entries.
func (a *Table) Freeze() [][]Entry {
	a.frozen++
	a.gen++
	out := make([][]Entry, 0, a.segments)
	a.each(func(s *Segment) { out = append(out, s.slots) })
	return out
}

// Unfreeze ends one Freeze.
func (a *Table) Unfreeze() { a.frozen-- }

// own copies the slots of s if they may be frozen. Writers call it before they search them.
func (a *Table) own(s *Segment) {
	if a.frozen > 0 && s.gen != a.gen {
		s.slots, s.gen = slices.Clone(s.slots), a.gen
	}
}

func mixHash(h uint64) uint64 {
	hi, lo := bits.Mul64(h^0xa0761d6478bd642f, 0xe7037ed1a0b428db)
	return hi ^ lo
}

// KindOf returns the kind of an entry: its tier and group.
func KindOf(tier, group uint8) uint32 { return uint32(group)<<8 | taken | uint32(tier) }

// Count returns the number of copies.
func (e *Entry) Count() uint32 { return e.Meta >> 16 }

// Kind returns tier and group in one word.
func (e *Entry) Kind() uint32 { return e.Meta & 0xffff }

// Tier returns the tier of an entry.
func (e *Entry) Tier() uint8 { return TierOf(e.Meta) }

// TierOf returns the tier of a kind.
func TierOf(kind uint32) uint8 { return uint8(kind & 0x7f) }

// New returns an empty table.
func New() *Table {
	return &Table{dir: []*Segment{{slots: make([]Entry, segmentMin)}}, segments: 1, slots: segmentMin}
}

// Sized returns an empty table with room for n entries.
func Sized(n int) *Table {
	const usual = segmentMax * 5 / 8 // entries of a segment, at most
	a := &Table{}
	for n>>a.depth > usual {
		a.depth++
	}
	a.segments = 1 << a.depth
	// Segments are not filled evenly: some have a tenth more than others.
	slots := max(segmentMin, (n>>a.depth)*3/2/bucket*bucket)
	a.dir = make([]*Segment, a.segments)
	for i := range a.dir {
		a.dir[i] = &Segment{slots: make([]Entry, slots), depth: a.depth}
	}
	a.slots = slots * a.segments
	return a
}

// Ahead returns a table of the same entries with room for four times as many, but for no more than
// most; a itself if it is large enough. Filling it takes half the time of growing step by step, and
// memory is not allocated for entries that may never arrive. The caller must have exclusive access,
// and must not use a afterwards.
func (a *Table) Ahead(most int) *Table {
	most = min(most, 4*a.n)
	if a.n < segmentMax || a.frozen > 0 || a.n*5 < a.slots*3 || most*4 < a.n*5 {
		return a
	}
	b := Sized(most)
	b.Repeats = a.Repeats
	a.Where(func(e *Entry) { b.insert(mixHash(e.Hash), *e) })
	return b
}

func (a *Table) segment(m uint64) *Segment { return a.dir[m>>(64-a.depth)] }

// home returns the slot where the search for a mixed hash begins: the first of a cache line, so
// that most searches stay in one.
func (s *Segment) home(m uint64) int {
	return int(uint64(uint32(m))*uint64(len(s.slots)/bucket)>>32) * bucket
}

func (s *Segment) after(i int) int { return s.wrap(i + 1) }

func (s *Segment) wrap(i int) int {
	if i == len(s.slots) {
		return 0
	}
	return i
}

// Next returns the first entry of hash from slot i on, and the next slot.
func (s *Segment) Next(h uint64, i int) (*Entry, int) {
	for ; s.slots[i].Meta != 0; i = s.after(i) {
		if s.slots[i].Hash == h {
			return &s.slots[i], s.after(i)
		}
	}
	return nil, i
}

// Find begins the search for a hash.
func (a *Table) Find(h uint64) (s *Segment, i int) {
	m := mixHash(h)
	s = a.segment(m)
	return s, s.home(m)
}

// First returns any entry of hash, or nil.
func (a *Table) First(h uint64) *Entry {
	s, i := a.Find(h)
	return s.first(h, i)
}

// line is a cache line of entries, taken ones first.
type line [bucket]Entry

// line returns the line that begins at slot i.
func (s *Segment) line(i int) *line { return (*line)(s.slots[i:]) }

// place returns the position of hash in a line, or bucket. It compiles to branch-free code, because
// the branches would be unpredictable.
func (l *line) place(h uint64) int {
	k := bucket
	if l[3].Hash == h {
		k = 3
	}
	if l[2].Hash == h {
		k = 2
	}
	if l[1].Hash == h {
		k = 1
	}
	if l[0].Hash == h {
		k = 0
	}
	return k
}

// taken returns the number of used entries of a line.
func (l *line) taken() int {
	k := bucket
	if l[3].Meta == 0 {
		k = 3
	}
	if l[2].Meta == 0 {
		k = 2
	}
	if l[1].Meta == 0 {
		k = 1
	}
	if l[0].Meta == 0 {
		k = 0
	}
	return k
}

// first returns any entry of hash, whose home is slot i, or nil.
func (s *Segment) first(h uint64, i int) *Entry {
	l := s.line(i)
	if k := l.place(h); k < bucket && l[k].Meta != 0 {
		return &l[k]
	}
	e, _ := s.Next(h, i)
	return e
}

// Lower decrements the count of every entry of (hash, kind) and reports whether there was one.
func (a *Table) Lower(h uint64, kind uint32) (found, spent bool) {
	s, i := a.Find(h)
	a.own(s)
	for e, i := s.Next(h, i); e != nil; e, i = s.Next(h, i) {
		if e.Kind() == kind {
			e.Meta -= one
			found, spent = true, spent || e.Count() == 0
		}
	}
	return found, spent
}

// LowerOnly is Lower followed by removal of a spent entry, in one search. It requires that no hash
// has several entries.
func (a *Table) LowerOnly(h uint64, kind uint32) (e Entry, found bool) {
	s, i := a.Find(h)
	a.own(s)
	if k := s.line(i).place(h); k < bucket {
		i += k
	}
	for ; s.slots[i].Hash != h; i = s.after(i) {
		if s.slots[i].Meta == 0 {
			return Entry{}, false
		}
	}
	if s.slots[i].Kind() != kind || s.slots[i].Meta == 0 {
		return Entry{}, false
	}
	s.slots[i].Meta -= one
	e = s.slots[i]
	if e.Count() == 0 {
		s.vacate(i)
		a.n--
	}
	return e, true
}

// Raise counts one more copy of node under (hash, kind), and reports whether it is the first. With
// again, an existing copy is not counted again.
func (a *Table) Raise(h uint64, node, kind uint32, again bool) bool {
	m := mixHash(h)
	s := a.segment(m)
	a.own(s)
	i := s.home(m)
	if l := s.line(i); l.place(h) == bucket {
		i = s.wrap(i + l.taken())
	}
	for ; s.slots[i].Meta != 0; i = s.after(i) {
		e := &s.slots[i]
		if e.Hash != h {
			continue
		}
		if e.Node == node && e.Kind() == kind {
			if !again && e.Count() < MaxCount {
				e.Meta += one
			}
			return false
		}
		a.Repeats = true
	}
	if e := (Entry{Hash: h, Node: node, Meta: kind | one}); s.full() {
		a.insert(m, e)
	} else {
		s.slots[i] = e
		s.n++
		a.n++
	}
	return true
}

// Unreferenced returns an entry of hash whose count is zero, or nil.
func (a *Table) Unreferenced(h uint64) *Entry {
	s, i := a.Find(h)
	for e, i := s.Next(h, i); e != nil; e, i = s.Next(h, i) {
		if e.Count() == 0 {
			return e
		}
	}
	return nil
}

// Has reports whether hash names node, of any kind.
func (a *Table) Has(h uint64, node uint32) bool {
	s, i := a.Find(h)
	for e, i := s.Next(h, i); e != nil; e, i = s.Next(h, i) {
		if e.Node == node {
			return true
		}
	}
	return false
}

// full reports whether a segment must grow before the next insertion.
func (s *Segment) full() bool { return (s.n+1)*4 > len(s.slots)*3 }

// insert adds a new entry with mixed hash m.
func (a *Table) insert(m uint64, e Entry) {
	s := a.segment(m)
	a.own(s)
	for s.full() {
		// Hashes with equal top bits (a hostile stream) must not double the directory indefinitely.
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

func (s *Segment) put(m uint64, e Entry) {
	i := s.home(m)
	for s.slots[i].Meta != 0 {
		i = s.after(i)
	}
	s.slots[i] = e
	s.n++
}

func (a *Table) enlarge(s *Segment) {
	old := s.slots
	step := max(256, len(old)/(8*bucket)*bucket)
	if len(old) < 1280 {
		step = 64
	}
	s.slots, s.n, s.gen = make([]Entry, len(old)+step), 0, a.gen
	a.slots += step
	for i := range old {
		if old[i].Meta != 0 {
			s.put(mixHash(old[i].Hash), old[i])
		}
	}
}

// split divides the segment of m.
func (a *Table) split(m uint64) {
	old := a.segment(m)
	if old.depth == a.depth {
		dir := make([]*Segment, 2*len(a.dir))
		for i, s := range a.dir {
			dir[2*i], dir[2*i+1] = s, s
		}
		a.dir = dir
		a.depth++
	}
	lo := &Segment{depth: old.depth + 1, gen: a.gen, slots: make([]Entry, segmentHalf)}
	hi := &Segment{depth: old.depth + 1, gen: a.gen, slots: make([]Entry, segmentHalf)}
	for _, e := range old.slots {
		if e.Meta == 0 {
			continue
		}
		em, s := mixHash(e.Hash), lo
		if em>>(64-lo.depth)&1 != 0 {
			s = hi
		}
		if s.n == len(s.slots)-1 { // a hostile stream: keep a free slot for probing
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

// Remove deletes the entry equal to e.
func (a *Table) Remove(e Entry) {
	s, i := a.Find(e.Hash)
	a.own(s)
	for s.slots[i] != e {
		i = s.after(i)
	}
	s.vacate(i)
	a.n--
}

// vacate empties slot i and closes the gap, so that no tombstones are needed.
func (s *Segment) vacate(i int) {
	l := s.line(i &^ (bucket - 1))
	last := l.taken() - 1
	l[i&(bucket-1)] = l[last&(bucket-1)]
	i = i&^(bucket-1) + last
	for j := s.after(i); s.slots[j].Meta != 0; j = s.after(j) {
		// Every entry in the gap's line has its home there or earlier.
		if i/bucket == j/bucket || s.distance(s.home(mixHash(s.slots[j].Hash)), j) >= s.distance(i, j) {
			s.slots[i] = s.slots[j]
			i = j
		}
	}
	s.slots[i] = Entry{}
	s.n--
}

// distance returns the number of slots from i to j.
func (s *Segment) distance(i, j int) int {
	if j -= i; j < 0 {
		return j + len(s.slots)
	}
	return j
}

// each calls f for every segment once.
func (a *Table) each(f func(*Segment)) {
	var last *Segment
	for _, s := range a.dir {
		if s != last {
			f(s)
			last = s
		}
	}
}

// Where calls f with every entry.
func (a *Table) Where(f func(*Entry)) {
	a.each(func(s *Segment) {
		for i := range s.slots {
			if s.slots[i].Meta != 0 {
				f(&s.slots[i])
			}
		}
	})
}

// Strip removes the segment at directory index at from a table that is no longer used. It returns
// its slots, including free ones, the number taken, and the next index; nil slots at the end.
func (a *Table) Strip(at int) (slots []Entry, n, next int) {
	if at == len(a.dir) {
		return nil, 0, at
	}
	s := a.dir[at]
	for next = at; next < len(a.dir) && a.dir[next] == s; next++ {
		a.dir[next] = nil
	}
	return s.slots, s.n, next
}

// Len returns the number of entries.
func (a *Table) Len() int { return a.n }

// Lines returns an entry of the line where the search for h begins and of the line where it may
// continue, for prefetching.
func (a *Table) Lines(h uint64) [2]*Entry {
	s, i := a.Find(h)
	return [2]*Entry{&s.slots[i], &s.slots[s.wrap(i+bucket)]}
}

// Home returns the slot where the search for h begins.
func (a *Table) Home(h uint64) *Entry {
	s, i := a.Find(h)
	return &s.slots[i]
}

// Bytes returns the memory of a table.
func (a *Table) Bytes() int { return a.slots*16 + a.segments*segmentBytes + 8*cap(a.dir) }
