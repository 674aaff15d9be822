package filter

import (
	"math/bits"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// A filter is a cuckoo table of 16-bit fingerprints. Its buckets have 32 slots, which are 64 bytes,
// one cache line. Each block has two candidate buckets and is stored in the one with more room. The
// second bucket follows from the first and the fingerprint, so a fingerprint can be moved or
// removed without its key. Adding or removing a block changes one slot, or two if both buckets were
// full. Changes are sent in rows of 8 slots.
const (
	slotsPerWord   = 4
	wordsPerRow    = 2
	wordsPerBucket = 8
	rowsPerBucket  = wordsPerBucket / wordsPerRow
	slotsPerBucket = wordsPerBucket * slotsPerWord
	rowBytes       = wordsPerRow * 8
)

// MaxBuckets limits a filter to 32 Mi blocks, 64 MiB.
const MaxBuckets = 1 << 20

const (
	lows  = 0x0001_0001_0001_0001
	highs = 0x8000_8000_8000_8000
)

// Filter reports whether a block is probably in another cluster's caches. All methods are safe for
// concurrent use with changes. A torn read is as harmless as a false positive: it costs a detour.
type Filter struct {
	key   pairKey
	words []uint64 // of buckets; read and written atomically, word by word
	n     uint64   // number of buckets

	rotation uint64 // of key
}

func newFilter(key pairKey, buckets int) *Filter {
	return &Filter{key: key, words: make([]uint64, buckets*wordsPerBucket), n: uint64(buckets)}
}

// place is where a block may be stored.
type place struct {
	first, second uint64 // buckets
	mark          uint64 // fingerprint, repeated in four slots
}

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

func (f *Filter) place(key block.Key) place {
	h := fold(uint64(key)^f.key.a, f.key.b)
	p := h & 0xffff
	if p == 0 {
		p = 1 // 0 is an empty slot
	}
	first, _ := bits.Mul64(h, f.n)
	return place{first: first, second: f.other(first, p), mark: p * lows}
}

// other returns the second bucket of a block, given the first. It is its own inverse.
func (f *Filter) other(bucket, mark uint64) uint64 {
	h, _ := bits.Mul64(fold(mark^f.key.b, f.key.a|1), f.n)
	if h >= bucket {
		return h - bucket
	}
	return h + f.n - bucket
}

// Has reports whether a block is in the filter. About one absent block in a thousand is a false
// positive. A nil filter is empty. Has does not allocate.
func (f *Filter) Has(key block.Key) bool {
	if f == nil || f.n == 0 {
		return false
	}
	p := f.place(key)
	return f.holds(p.first, p.mark) || f.holds(p.second, p.mark)
}

func (f *Filter) holds(bucket, mark uint64) bool {
	row := f.words[bucket*wordsPerBucket:][:wordsPerBucket]
	for i := range row {
		x := atomic.LoadUint64(&row[i]) ^ mark
		if (x-lows)&^x&highs != 0 {
			return true
		}
	}
	return false
}

// Run returns how many leading keys of a prompt are in the filter. It looks up about twice the
// logarithm of their number. To limit false positives, it accepts a hit only if the block before it
// is a hit too.
func (f *Filter) Run(keys []block.Key) int {
	if f == nil || len(keys) == 0 || !f.Has(keys[0]) {
		return 0
	}
	held, not := 1, len(keys)+1 // the first held keys are present; key number not is absent
	for step := 1; held+1 < not; {
		at := (held + not) / 2
		if not > len(keys) { // no miss so far: gallop
			at = min(held+step, len(keys))
			step *= 2
		}
		if f.Has(keys[at-1]) && f.Has(keys[at-2]) {
			held = at
		} else {
			not = at
		}
	}
	return held
}

// Blocks returns the filter's capacity in blocks.
func (f *Filter) Blocks() int {
	if f == nil {
		return 0
	}
	return int(f.n) * slotsPerBucket
}

// Bytes returns the filter's memory.
func (f *Filter) Bytes() int {
	if f == nil {
		return 0
	}
	return len(f.words) * 8
}
