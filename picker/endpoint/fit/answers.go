package fit

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// Answers learns how long answers are: a faded mean for each model and class of
// max_tokens, by powers of two, one for each model, and one for all. The zero value is ready. It is
// safe for concurrent use; of two observations at the same moment one may be
// lost.
type Answers struct {
	all   Mean
	class [answerClasses]Mean
}

const (
	answerClasses = 1 << 15 // two that share a cell share their mean
	anyLimit      = -1      // the class of all answers of a model
	answerPrior   = 200.0   // tokens, with the weight of one answer
	answerFade    = 1. / 64
	answerTrust   = 4 // answers that count as much as what is less like them
)

// Mean is a faded mean and the weight behind it, in one word. The zero value is ready. It is
// safe for concurrent use; of two values added at the same moment one may be lost.
type Mean struct{ word atomic.Uint64 }

// Load returns the mean and its weight, 0 before the first value.
func (c *Mean) Load() (mean, weight float64) {
	w := c.word.Load()
	return float64(math.Float32frombits(uint32(w >> 32))), float64(math.Float32frombits(uint32(w)))
}

// Add takes one value.
func (c *Mean) Add(x float64) {
	mean, weight := c.Load()
	weight = min(weight+1, 1/answerFade)
	mean += (x - mean) / weight
	c.word.Store(uint64(math.Float32bits(float32(mean)))<<32 | uint64(math.Float32bits(float32(weight))))
}

// Observe takes the length of one whole answer to a request for a model, with
// the most tokens that it asked for, 0 when it set no limit.
func (a *Answers) Observe(model string, limit, tokens int) {
	if tokens <= 0 {
		return
	}
	a.all.Add(float64(tokens))
	a.class[classOf(model, anyLimit)].Add(float64(tokens))
	a.class[classOf(model, limit)].Add(float64(tokens))
}

// Expect returns the tokens that an answer is expected to have. Until a class
// has been seen the mean of its model stands in, before that the one of all answers,
// and before that a prior.
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

// classOf spreads models and classes of limits over the cells.
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
