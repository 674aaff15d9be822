package fit

import (
	"math"
	"sync/atomic"
)

// Saved estimates the share of prefill time saved by loading blocks from host memory: the median
// over first tokens, since some also waited for other reasons. The zero value is ready. It is safe
// for concurrent use; of two simultaneous observations one may be lost.
type Saved struct{ word atomic.Uint64 } // the share as float64 bits; 0: no observation

// savedStep is the change per observation, and the minimum share.
const savedStep = .01

// Or returns the share, or prior without observations.
func (s *Saved) Or(prior float64) float64 {
	if w := s.word.Load(); w != 0 {
		return math.Float64frombits(w)
	}
	return prior
}

// Observe adds the share shown by one first token, which may be any number. The first observation
// starts from prior.
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
