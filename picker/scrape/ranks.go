package scrape

import (
	"math"
	"math/bits"
)

// mostRanks bounds the rank numbers that are distinguished.
const mostRanks = 1024

// rankSet is a set of rank numbers. They need not begin at 0, since a page may cover one host's
// ranks.
type rankSet [mostRanks / 64]uint64

// add adds a label's value; invalid or too large numbers are ignored.
func (s *rankSet) add(value []byte) {
	if n, ok := decimal(value); ok && n == math.Trunc(n) && n < mostRanks {
		s[int(n)/64] |= 1 << (int(n) % 64)
	}
}

func (s *rankSet) len() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}
