package policies

import (
	"math"
	"slices"

	"github.com/grapevine-epp/grapevine/picker/cycle"
)

// Fallbacks is the default number of endpoints in a plan: one to serve, two for the proxy's
// retries.
const Fallbacks = 3

// MaxScore picks the best totals, with ties broken at random.
type MaxScore int

// Top implements cycle.TopPicker.
func (n MaxScore) Top() int { return max(int(n), 1) }

// Pick implements cycle.Picker.
func (n MaxScore) Pick(c *cycle.Cycle, totals []float64, order []int32) []int32 {
	for range min(int(n), len(totals)) {
		order = append(order, best(c, totals, order))
	}
	return order
}

// best returns the position of the largest total not in taken, a random one of equals.
func best(c *cycle.Cycle, totals []float64, taken []int32) int32 {
	at, ties := int32(-1), 1
	for k, v := range totals {
		switch {
		case at >= 0 && v < totals[at] || slices.Contains(taken, int32(k)):
		case at < 0 || v > totals[at]:
			at, ties = int32(k), 1
		default:
			ties++
			if c.IntN(ties) == 0 {
				at = int32(k)
			}
		}
	}
	return at
}

// FirstScore picks the best totals, with ties broken by position, as the published policies do.
type FirstScore int

// Top implements cycle.TopPicker.
func (n FirstScore) Top() int { return max(int(n), 1) }

// Pick implements cycle.Picker.
func (n FirstScore) Pick(_ *cycle.Cycle, totals []float64, order []int32) []int32 {
	for range min(int(n), len(totals)) {
		at := int32(-1)
		for k, v := range totals {
			if (at < 0 || v > totals[at]) && !slices.Contains(order, int32(k)) {
				at = int32(k)
			}
		}
		order = append(order, at)
	}
	return order
}

// Random picks at random, ignoring totals.
type Random int

// Pick implements cycle.Picker.
func (n Random) Pick(c *cycle.Cycle, totals []float64, order []int32) []int32 {
	for left := len(totals); left > 0 && len(order) < int(n); left-- {
		skip := c.IntN(left)
		for k := range int32(len(totals)) {
			if slices.Contains(order, k) {
				continue
			}
			if skip == 0 {
				order = append(order, k)
				break
			}
			skip--
		}
	}
	return order
}

// WeightedRandom samples with probabilities proportional to the totals, by keys U^(1/w) (Efraimidis
// and Spirakis, A-Res). Totals of 0 and less come last; if there are no others, all are equal.
type WeightedRandom int

// Pick implements cycle.Picker.
func (n WeightedRandom) Pick(c *cycle.Cycle, totals []float64, order []int32) []int32 {
	keys, positive := c.Scratch(len(totals)), false
	for k, w := range totals {
		if keys[k] = math.Inf(-1); w > 0 {
			// log U / w has the same order as U^(1/w), without underflow.
			keys[k], positive = math.Log(1-c.Float64())/w, true
		}
	}
	if !positive {
		return Random(n).Pick(c, totals, order)
	}
	return MaxScore(n).Pick(c, keys, order)
}
