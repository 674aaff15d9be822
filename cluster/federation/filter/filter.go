package filter

import (
	"math/bits"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// A filter is a table of 16-bit fingerprints: buckets of 32 slots, which are 64
// bytes, a line of the cache. A block has two buckets and is in the one that had more
// room; the second follows from the first and the fingerprint, so that a fingerprint
// can be moved and taken out without knowing whose it is. Entering or taking out a block
// changes one slot, or two where both buckets were full. Rows of 8 slots are the unit in
// which changes travel.
const (
	slotsPerWord   = 4
	wordsPerRow    = 2
	wordsPerBucket = 8
	rowsPerBucket  = wordsPerBucket / wordsPerRow
	slotsPerBucket = wordsPerBucket * slotsPerWord
	rowBytes       = wordsPerRow * 8
)

// MaxBuckets bounds a filter: 32 Mi blocks, 64 MiB.
const MaxBuckets = 1 << 20

const (
	lows  = 0x0001_0001_0001_0001
	highs = 0x8000_8000_8000_8000
)

// Filter answers whether a block is, as far as is known, held in another cluster. All
// methods may be called concurrently with changes; an answer that is mixed of before and
// after is as wrong as any other, and costs a detour.
type Filter struct {
	key   pairKey
	words []uint64 // of buckets; read and written atomically, word by word
	n     uint64   // buckets

	rotation uint64 // of key
}

func newFilter(key pairKey, buckets int) *Filter {
	return &Filter{key: key, words: make([]uint64, buckets*wordsPerBucket), n: uint64(buckets)}
}

// place is where a block may be.
type place struct {
	first, second uint64 // buckets
	mark          uint64 // fingerprint in each of four slots
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

// other returns the second bucket of a block that has the first: what it makes of the
// second is the first again.
func (f *Filter) other(bucket, mark uint64) uint64 {
	h, _ := bits.Mul64(fold(mark^f.key.b, f.key.a|1), f.n)
	if h >= bucket {
		return h - bucket
	}
	return h + f.n - bucket
}

// Has reports whether a block is held there, as far as is known: about one in a
// thousand that are not is answered yes. A nil filter has nothing. It allocates nothing.
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

// Run returns how many of the leading keys of a prompt are held there, as far as is
// known. It looks at about twice the logarithm of their number, and lets a wrong yes
// stand only when the block before it is answered yes too.
func (f *Filter) Run(keys []block.Key) int {
	if f == nil || len(keys) == 0 || !f.Has(keys[0]) {
		return 0
	}
	held, not := 1, len(keys)+1 // the first held keys are; the first not are not
	for step := 1; held+1 < not; {
		at := (held + not) / 2
		if not > len(keys) { // nothing missed so far: gallop
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

// Blocks returns how many blocks it has room for.
func (f *Filter) Blocks() int {
	if f == nil {
		return 0
	}
	return int(f.n) * slotsPerBucket
}

// Bytes returns the memory that it takes.
func (f *Filter) Bytes() int {
	if f == nil {
		return 0
	}
	return len(f.words) * 8
}
