package scrape

import (
	"math"
	"math/bits"
)

// mostRanks bounds the numbers of ranks that are told apart.
const mostRanks = 1024

// rankSet is a set of ranks by their numbers, which need not begin at 0: a page tells those
// of its host.
type rankSet [mostRanks / 64]uint64

// add takes a label's value; what is no number, or too high, is left out.
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
