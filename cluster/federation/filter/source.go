package filter

import (
	"math/bits"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// The target load of a filter. Above it, some blocks find both of their buckets full.
const (
	loadNum, loadDen = 15, 16
	minBuckets       = 64
)

// Source is the filter of a hot set for one other cluster. Only the set changes it, and its methods
// hold the set's lock. The filter is rebuilt for a new key or size. The rebuild runs in steps, so
// that no caller waits for millions of blocks. Until it is complete, the previous filter is sent
// and kept up to date.
type Source struct {
	hot      *Hot
	key      func(rotation uint64) pairKey
	rotation uint64
	epoch    uint64 // distinguishes rebuilt filters; 0 is not sent
	first    bool   // the first filter is not complete yet
	*table
	next   *table // being built; nil: none
	cursor int    // position in the set's ring up to which next is complete
	seen   uint64 // changes of the set applied
	full   bool   // the set has outgrown the filter
}

// table is a filter that is written.
type table struct {
	filter  *Filter
	stamps  []uint32 // by row: the version of its last change
	version uint32   // last version sent; changes belong to the next
	digest  uint64   // of all rows; equal for equal content
	blocks  int
	omitted int // blocks that currently have no slot
	dirty   bool
}

func newTable(key pairKey, buckets int) *table {
	return &table{filter: newFilter(key, buckets), stamps: make([]uint32, buckets*rowsPerBucket)}
}

// buildStep is how many blocks are added to rebuilt filters per step.
const buildStep = 100_000

// Way identifies a filter: exporter, importer and pool.
type Way struct {
	Exporter, Importer string // clusters
	Namespace, Pool    string
}

// NewSource makes the filter of hot for one importer. It follows the set until Close. epoch must be
// unique among all sources of all processes.
func NewSource(hot *Hot, secret *Secret, w Way, rotation, epoch uint64) *Source {
	s := &Source{hot: hot, epoch: epoch, rotation: rotation, first: true, key: func(r uint64) pairKey { return secret.pair(w, r) }}
	hot.mu.Lock()
	defer hot.mu.Unlock()
	s.table = newTable(s.key(rotation), minBuckets)
	hot.attach(s)
	return s
}

// Close detaches the source from the set.
func (s *Source) Close() {
	s.hot.mu.Lock()
	defer s.hot.mu.Unlock()
	s.hot.detach(s)
}

// Rotate switches to the key of a rotation if needed, and continues a rebuild. Call it often.
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

// Head identifies a filter and its version. An importer with all changes up to Version of this
// Epoch has the exporter's filter as of that version.
type Head struct {
	Epoch    uint64
	Rotation uint64
	Buckets  uint32
	Version  uint32
	Blocks   uint32 // blocks in the filter
	Omitted  uint32 // blocks without a slot
}

// Bytes returns the filter's memory.
func (h Head) Bytes() int { return int(h.Buckets) * wordsPerBucket * 8 }

// Head returns the current head. Its Epoch is zero for a nil source, and until the first filter is
// complete.
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

// settle makes the latest changes a version.
func (s *table) settle() {
	if s.dirty {
		s.version++
		s.dirty = false
	}
}

// bucketsFor returns the number of buckets for that many blocks at the target load.
func bucketsFor(blocks int) int {
	return min(max((blocks*loadDen+slotsPerBucket*loadNum-1)/(slotsPerBucket*loadNum), minBuckets), MaxBuckets)
}

// follow applies the set's changes. All methods except Close call it first. Rebuilds start or
// continue only afterwards, because they read the current set.
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

// rebuild starts a new filter with room to grow.
func (s *Source) rebuild(h *Hot) {
	want := min(len(h.ring)+len(h.ring)/2, h.most)
	s.next, s.cursor = newTable(s.key(s.rotation), bucketsFor(want)), 0
	s.next.filter.rotation = s.rotation
	s.step(h)
}

// step continues a rebuild, and switches to the new filter when it is complete.
func (s *Source) step(h *Hot) {
	for end := min(s.cursor+buildStep/max(len(h.sources), 1)+1, len(h.ring)); s.cursor < end; s.cursor++ {
		s.next.add(h.ring[s.cursor].key)
	}
	if s.cursor == len(h.ring) {
		s.table, s.next, s.first = s.next, nil, false
		s.epoch++
	}
}

// enter handles a block stored at a position of the set, which then had n entries.
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

// forget handles a block removed from a position of the set.
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

// makeRoom moves one block of a full bucket to its other bucket and returns the freed slot.
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
	s.omitted-- // it had no slot
}

// zeros sets the highest bit of each 16-bit lane that is zero.
func zeros(w uint64) uint64 { return ^((w&^highs + ^uint64(highs)) | w | ^uint64(highs)) }

// vacant returns the first free slot of a bucket and the number of free slots.
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

// rowDigest is a row's contribution to the digest; zero for an empty row.
func (f *Filter) rowDigest(row uint64) uint64 {
	a, b := f.words[row*wordsPerRow], f.words[row*wordsPerRow+1]
	if a|b == 0 {
		return 0
	}
	return fold(a^row*0x9e3779b97f4a7c15, b^0xd1b54a32d192ed03) ^ fold(b^row, a^0x8cb92ba72f3d8dd7)
}
