package fit

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// Answers learns answer lengths: a decayed mean for each model and max_tokens class (powers of
// two), one per model, and one for all. The zero value is ready. It is safe for concurrent use; of
// two simultaneous observations one may be lost.
type Answers struct {
	all   Mean
	class [answerClasses]Mean
}

const (
	answerClasses = 1 << 15 // keys with the same cell share its mean
	anyLimit      = -1      // the class of all answers of a model
	answerPrior   = 200.0   // tokens, with the weight of one answer
	answerFade    = 1. / 64
	answerTrust   = 4 // number of answers that count as much as the less specific mean
)

// Mean is a decayed mean with its weight, in one word. The zero value is ready. It is safe for
// concurrent use; of two simultaneous additions one may be lost.
// safe for concurrent use; of two values added at the same moment one may be lost.
type Mean struct{ word atomic.Uint64 }

// Load returns the mean and its weight, 0 before the first value.
func (c *Mean) Load() (mean, weight float64) {
	w := c.word.Load()
	return float64(math.Float32frombits(uint32(w >> 32))), float64(math.Float32frombits(uint32(w)))
}

// Add adds one value.
func (c *Mean) Add(x float64) {
	mean, weight := c.Load()
	weight = min(weight+1, 1/answerFade)
	mean += (x - mean) / weight
	c.word.Store(uint64(math.Float32bits(float32(mean)))<<32 | uint64(math.Float32bits(float32(weight))))
}

// Observe records the length of one complete answer. limit is the request's max_tokens, 0 if unset.
func (a *Answers) Observe(model string, limit, tokens int) {
	if tokens <= 0 {
		return
	}
	a.all.Add(float64(tokens))
	a.class[classOf(model, anyLimit)].Add(float64(tokens))
	a.class[classOf(model, limit)].Add(float64(tokens))
}

// Expect returns the expected answer length in tokens. Without samples of the class, the model's
// mean is used, then the mean of all answers, then a prior.
func (a *Answers) Expect(model string, limit int) float64 {
	mean, weight := a.all.Load()
	mean = (mean*weight + answerPrior) / (weight + 1)
	for _, limit := range [...]int{anyLimit, limit} {
		own, seen := a.class[classOf(model, limit)].Load()
		mean = (own*seen + mean*answerTrust) / (seen + answerTrust)
	}
	if limit > 0 {
		mean = min(mean, float64(limit))
	}
	return max(mean, 1)
}

// classOf hashes models and limit classes to cells.
func classOf(model string, limit int) int {
	h := uint32(2166136261)
	for i := range len(model) {
		h = (h ^ uint32(model[i])) * 16777619
	}
	h = (h ^ uint32(bits.Len(uint(max(limit, 0))))) * 16777619
	if limit == anyLimit {
		h = (h ^ bits.UintSize) * 16777619
	}
	return int(h>>19^h) % answerClasses
}
