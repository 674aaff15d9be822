package fit

import (
	"math"
	"sync/atomic"
)

// Saved learns which share of their prefill it saves that an engine loads tokens' blocks
// from its host's memory: the median of what first tokens show, since some of them
// waited for something else too. The zero value is ready. It is safe for concurrent use;
// of two observations at the same moment one may be lost.
type Saved struct{ word atomic.Uint64 } // the share as float64 bits; 0: nothing was seen

// savedStep is by how much one observation moves the share, and the least of it.
const savedStep = .01

// Or returns the share, and prior while nothing was seen.
func (s *Saved) Or(prior float64) float64 {
	if w := s.word.Load(); w != 0 {
		return math.Float64frombits(w)
	}
	return prior
}

// Observe takes the share that one first token shows, which may be any number. The first
// observation moves prior.
func (s *Saved) Observe(share, prior float64) {
	v := s.Or(prior)
	switch {
	case share > v:
		v = min(v+savedStep, share)
	case share < v:
		v = max(v-savedStep, share)
	}
	s.word.Store(math.Float64bits(min(max(v, savedStep), 1)))
}
