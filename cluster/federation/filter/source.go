package filter

import (
	"math/bits"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// load is the share of a filter's slots that are to be in use at its size: above it
// blocks begin to find both of their buckets full.
const (
	loadNum, loadDen = 15, 16
	minBuckets       = 64
)

// Source is the filter of a hot set that is made for one other cluster. It is changed
// by the set alone, and its methods hold the set's lock. A filter is begun anew for
// another key or size; that is done in steps, so that nobody waits for millions of blocks,
// and until it is whole the one before is told and kept up to date.
type Source struct {
	hot      *Hot
	key      func(rotation uint64) pairKey
	rotation uint64
	epoch    uint64 // tells one life of the filter from the next; 0 is not told
	first    bool   // the first one is not whole yet
	*table
	next   *table // that is being made; nil: none is
	cursor int    // place in the set's ring up to which next has everything
	seen   uint64 // changes of the set that it has followed
	full   bool   // the set has outgrown the filter
}

// table is a filter that is written.
type table struct {
	filter  *Filter
	stamps  []uint32 // by row: the version in which it changed last
	version uint32   // of what was told; changes are of the next one
	digest  uint64   // of all rows; the same for equal content
	blocks  int
	omitted int // blocks that found no room, now
	dirty   bool
}

func newTable(key pairKey, buckets int) *table {
	return &table{filter: newFilter(key, buckets), stamps: make([]uint32, buckets*rowsPerBucket)}
}

// buildStep is how many blocks are entered into filters that begin anew at a time.
const buildStep = 100_000

// Way is who tells whom of which pool.
type Way struct {
	Exporter, Importer string // clusters
	Namespace, Pool    string
}

// NewSource makes hot's filter for one importer, and follows the set until Close.
// epoch must differ from that of every earlier source of this process and others.
func NewSource(hot *Hot, secret *Secret, w Way, rotation, epoch uint64) *Source {
	s := &Source{hot: hot, epoch: epoch, rotation: rotation, first: true, key: func(r uint64) pairKey { return secret.pair(w, r) }}
	hot.mu.Lock()
	defer hot.mu.Unlock()
	s.table = newTable(s.key(rotation), minBuckets)
	hot.attach(s)
	return s
}

// Close ends following the set.
func (s *Source) Close() {
	s.hot.mu.Lock()
	defer s.hot.mu.Unlock()
	s.hot.detach(s)
}

// Rotate sees to it that the key is that of a rotation, and goes on with a filter that is
// being made. It is to be called often.
func (s *Source) Rotate(rotation uint64) {
	s.hot.mu.Lock()
	defer s.hot.mu.Unlock()
	s.follow(s.hot)
	switch {
	case s.rotation != rotation:
		s.rotation = rotation
		s.rebuild(s.hot)
	case s.next != nil:
		s.step(s.hot)
	}
}

// Head is what names a filter and how far it has come: the barrier of its changes. Who
// has everything up to Version of this Epoch has what the exporter had when it said so.
type Head struct {
	Epoch    uint64
	Rotation uint64
	Buckets  uint32
	Version  uint32
	Blocks   uint32 // entered
	Omitted  uint32 // that found no room
}

// Bytes returns how much memory the filter takes.
func (h Head) Bytes() int { return int(h.Buckets) * wordsPerBucket * 8 }

// Head returns the head of now; a zero Epoch is that of a nil source, and of one whose
// first filter is being made.
func (s *Source) Head() Head {
	if s == nil {
		return Head{}
	}
	s.hot.mu.Lock()
	defer s.hot.mu.Unlock()
	s.follow(s.hot)
	if s.first {
		return Head{}
	}
	s.settle()
	return s.head()
}

func (s *Source) head() Head {
	return Head{Epoch: s.epoch, Rotation: s.filter.rotation, Buckets: uint32(s.filter.n), Version: s.version, Blocks: uint32(s.blocks), Omitted: uint32(max(s.omitted, 0))}
}

// settle makes what has changed a version of its own.
func (s *table) settle() {
	if s.dirty {
		s.version++
		s.dirty = false
	}
}

// bucketsFor returns how many buckets hold so many blocks at the load that is aimed at.
func bucketsFor(blocks int) int {
	return min(max((blocks*loadDen+slotsPerBucket*loadNum-1)/(slotsPerBucket*loadNum), minBuckets), MaxBuckets)
}

// follow brings the source to where the set is. All but Close begin with it. A filter is begun
// anew, or gone on with, afterwards only: it is made of the set as it is.
func (s *Source) follow(h *Hot) {
	for _, c := range h.changes[s.seen-h.before:] {
		if c.n > 0 {
			s.enter(c.key, int(c.place), int(c.n))
		} else {
			s.forget(c.key, int(c.place))
		}
	}
	s.seen = h.before + uint64(len(h.changes))
	if s.full && s.next == nil {
		s.rebuild(h)
	}
	s.full = false
}

// rebuild begins the filter anew, with room to grow.
func (s *Source) rebuild(h *Hot) {
	want := min(len(h.ring)+len(h.ring)/2, h.most)
	s.next, s.cursor = newTable(s.key(s.rotation), bucketsFor(want)), 0
	s.next.filter.rotation = s.rotation
	s.step(h)
}

// step goes on with the filter that is being made, and takes it when it is whole.
func (s *Source) step(h *Hot) {
	for end := min(s.cursor+buildStep/max(len(h.sources), 1)+1, len(h.ring)); s.cursor < end; s.cursor++ {
		s.next.add(h.ring[s.cursor].key)
	}
	if s.cursor == len(h.ring) {
		s.table, s.next, s.first = s.next, nil, false
		s.epoch++
	}
}

// enter follows a block that was entered into a place of the set, which had n then.
func (s *Source) enter(k block.Key, place, n int) {
	s.add(k)
	if s.next != nil {
		if place < s.cursor {
			s.next.add(k)
		}
		return
	}
	if room := int(s.filter.n) * slotsPerBucket / loadDen * loadNum; n > room+slotsPerBucket && s.filter.n < MaxBuckets {
		s.full = true
	}
}

// forget follows a block that was taken out of a place of the set.
func (s *Source) forget(k block.Key, place int) {
	s.remove(k)
	if s.next != nil && place < s.cursor {
		s.next.remove(k)
	}
}

func (s *table) add(k block.Key) {
	p := s.filter.place(k)
	a, freeA := s.vacant(p.first)
	b, freeB := s.vacant(p.second)
	if freeB > freeA {
		a, freeA = b, freeB
	}
	if freeA == 0 {
		var moved bool
		if a, moved = s.makeRoom(p.first); !moved {
			s.omitted++
			return
		}
	}
	s.blocks++
	s.set(a, p.mark&0xffff)
}

// makeRoom moves one block of a full bucket to its other one, and returns its slot.
func (s *table) makeRoom(bucket uint64) (at uint64, ok bool) {
	for i := uint64(0); i < slotsPerBucket; i++ {
		at = bucket*slotsPerBucket + i
		mark := s.get(at)
		if to, free := s.vacant(s.filter.other(bucket, mark)); free > 0 {
			s.set(to, mark)
			return at, true
		}
	}
	return 0, false
}

func (s *table) remove(k block.Key) {
	p := s.filter.place(k)
	for _, bucket := range [...]uint64{p.first, p.second} {
		if at, ok := s.slot(bucket, p.mark&0xffff); ok {
			s.blocks--
			s.set(at, 0)
			return
		}
	}
	s.omitted-- // it had found no room
}

// zeros marks the lanes of 16 bits that are zero by their highest bits.
func zeros(w uint64) uint64 { return ^((w&^highs + ^uint64(highs)) | w | ^uint64(highs)) }

// vacant returns the first free slot of a bucket and how many there are.
func (s *table) vacant(bucket uint64) (at uint64, free int) {
	for i, w := range s.filter.words[bucket*wordsPerBucket:][:wordsPerBucket] {
		if z := zeros(w); z != 0 {
			if free == 0 {
				at = bucket*slotsPerBucket + uint64(i*slotsPerWord+bits.TrailingZeros64(z)/16)
			}
			free += bits.OnesCount64(z)
		}
	}
	return at, free
}

func (s *table) slot(bucket, mark uint64) (at uint64, ok bool) {
	for i, w := range s.filter.words[bucket*wordsPerBucket:][:wordsPerBucket] {
		if z := zeros(w ^ mark*lows); z != 0 {
			return bucket*slotsPerBucket + uint64(i*slotsPerWord+bits.TrailingZeros64(z)/16), true
		}
	}
	return 0, false
}

func (s *table) get(slot uint64) uint64 {
	return s.filter.words[slot/slotsPerWord] >> (slot % slotsPerWord * 16) & 0xffff
}

func (s *table) set(slot, mark uint64) {
	word := &s.filter.words[slot/slotsPerWord]
	row := slot / (slotsPerWord * wordsPerRow)
	s.digest ^= s.filter.rowDigest(row)
	shift := slot % slotsPerWord * 16
	atomic.StoreUint64(word, *word&^(0xffff<<shift)|mark<<shift)
	s.digest ^= s.filter.rowDigest(row)
	s.stamps[row] = s.version + 1
	s.dirty = true
}

// rowDigest is a row's part of the digest: nothing for an empty one.
func (f *Filter) rowDigest(row uint64) uint64 {
	a, b := f.words[row*wordsPerRow], f.words[row*wordsPerRow+1]
	if a|b == 0 {
		return 0
	}
	return fold(a^row*0x9e3779b97f4a7c15, b^0xd1b54a32d192ed03) ^ fold(b^row, a^0x8cb92ba72f3d8dd7)
}
