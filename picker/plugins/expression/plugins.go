package expression

import (
	"math"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/grapevine-epp/grapevine/picker/cycle"
)

// rule evaluates a program for one endpoint after the other.
type rule struct{ program cel.Program }

var pool = sync.Pool{New: func() any { return new(vars) }}

// each calls use with the result of every candidate; nil for a failed evaluation, which it counts.
func (r rule) each(c *cycle.Cycle, n int, use func(k int, result ref.Val)) {
	v := pool.Get().(*vars)
	v.c = c
	for k := range n {
		v.set(k)
		result, _, err := r.program.Eval(v)
		if err != nil {
			c.CountFailure()
			result = nil
		}
		use(k, result)
	}
	*v = vars{}
	pool.Put(v)
}

type filter struct {
	rule
	soft bool
}

// NewFilter compiles the rule of a filter. A soft filter keeps all endpoints if it would keep none.
func NewFilter(source string, soft bool) (cycle.Filter, error) {
	program, err := compile(source, cel.BoolType)
	return filter{rule{program}, soft}, err
}

// Filter implements cycle.Filter.
func (f filter) Filter(c *cycle.Cycle, keep []bool) {
	f.each(c, len(keep), func(k int, result ref.Val) { keep[k] = result != types.False })
	if f.soft {
		cycle.KeepAllIfNone(keep)
	}
}

type scorer struct {
	rule
	normalize bool
}

// NewScorer compiles the value of a scorer. With normalize, values are scaled to 0 to 1; without it
// they are cut there.
func NewScorer(source string, normalize bool) (cycle.Scorer, error) {
	program, err := compile(source, cel.DoubleType, cel.IntType, cel.BoolType)
	return scorer{rule{program}, normalize}, err
}

// Score implements cycle.Scorer.
func (s scorer) Score(c *cycle.Cycle, scores []float64) {
	s.each(c, len(scores), func(k int, result ref.Val) {
		value, ok := number(result)
		if result != nil && !ok {
			c.CountFailure()
		}
		if scores[k] = value; !ok {
			scores[k] = math.NaN()
		}
	})
	Scale(scores, s.normalize, 0)
}

// Scale brings the values of a scorer to 0 to 1. With normalize, the lowest becomes 0 and the highest
// 1; without it, values are cut. NaN becomes missing.
func Scale(scores []float64, normalize bool, missing float64) {
	least, most := math.Inf(1), math.Inf(-1)
	for _, value := range scores {
		if !math.IsNaN(value) {
			least, most = min(least, value), max(most, value)
		}
	}
	for k, value := range scores {
		switch {
		case math.IsNaN(value):
			scores[k] = missing
		case !normalize:
			scores[k] = min(max(value, 0), 1)
		case most > least:
			scores[k] = (value - least) / (most - least)
		default:
			scores[k] = 1
		}
	}
}

// number converts a result. NaN and infinite values are failures.
func number(result ref.Val) (value float64, ok bool) {
	switch x := result.(type) {
	case types.Double:
		value = float64(x)
	case types.Int:
		value = float64(x)
	case types.Bool:
		if x {
			value = 1
		}
	default:
		return 0, false
	}
	return value, !math.IsNaN(value) && !math.IsInf(value, 0)
}
