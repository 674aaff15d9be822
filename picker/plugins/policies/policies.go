package policies

import (
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/picker/cycle"
)

// The published policies use an endpoint's pending prefill tokens, its number of requests and the
// part of the prompt that it holds. As scorers they return the negative cost. Each has its own
// picker, because ties are broken differently.

// LoadOnly picks the endpoint with the fewest requests, the first of equals.
type LoadOnly struct{}

// Score implements cycle.Scorer.
func (LoadOnly) Score(c *cycle.Cycle, scores []float64) {
	for k := range scores {
		scores[k] = -float64(c.At(k).Load.Requests)
	}
}

// LMetric picks the lowest (pending prefill + new prefill) × requests, the first of equals.
type LMetric struct{}

// NewPrefill returns the input tokens that candidate k does not hold, weighted by tier.
func NewPrefill(c *cycle.Cycle, k int) float64 {
	return max(float64(c.Request.InputTokens)-c.Held(k), 0)
}

func lmetricCost(c *cycle.Cycle, k int) float64 {
	l := &c.At(k).Load
	return (float64(l.Prefill) + NewPrefill(c, k)) * float64(l.Requests)
}

// Score implements cycle.Scorer.
func (LMetric) Score(c *cycle.Cycle, scores []float64) {
	for k := range scores {
		scores[k] = -lmetricCost(c, k)
	}
}

// Sticky keeps a session at the endpoint of its first request, which LoadOnly chose.
type Sticky struct{}

// Score implements cycle.Scorer.
func (Sticky) Score(c *cycle.Cycle, scores []float64) {
	LoadOnly{}.Score(c, scores)
	if at := c.Bound(); at >= 0 {
		scores[at] = 1
	}
}

// UnifiedParams are the thresholds of Unified: the held share of the prompt, and requests relative
// to the mean.
type UnifiedParams struct {
	HitThreshold float64 `json:"hitThreshold"`
	LoadFactor   float64 `json:"loadFactor"`
}

// Unified stays with the session's endpoint while that holds enough of the prompt and is not much
// busier than the mean. Otherwise it is LMetric, with ties broken by new prefill, requests, and
// round robin.
type Unified struct {
	UnifiedParams
	turn atomic.Uint64
}

// stay returns the candidate to stay with, or −1.
func (u *Unified) stay(c *cycle.Cycle) int {
	at := c.Bound()
	if at < 0 {
		return -1
	}
	sum, n := 0.0, c.Len()
	for k := range n {
		sum += float64(c.At(k).Load.Requests)
	}
	hit := c.Held(at) / float64(max(c.Request.InputTokens, 1))
	busy := float64(c.At(at).Load.Requests)
	if hit > u.HitThreshold && busy <= u.LoadFactor*max(sum/float64(n), 1) {
		return at
	}
	return -1
}

// Score implements cycle.Scorer.
func (u *Unified) Score(c *cycle.Cycle, scores []float64) {
	LMetric{}.Score(c, scores)
	if at := u.stay(c); at >= 0 {
		scores[at] = 1
	}
}

// Pick implements cycle.Picker.
func (u *Unified) Pick(c *cycle.Cycle, totals []float64, order []int32) []int32 {
	at, tied := int32(0), 1
	for k := 1; k < len(totals); k++ {
		switch u.compare(c, totals, k, int(at)) {
		case 1:
			at, tied = int32(k), 1
		case 0:
			tied++
		}
	}
	if tied > 1 {
		at = u.turns(c, totals, at, tied)
	}
	order = append(order, at)
	for range min(Fallbacks, len(totals)) - 1 {
		order = append(order, best(c, totals, order))
	}
	return order
}

// compare returns 1 if candidate a is better than b, 0 if they are tied.
func (u *Unified) compare(c *cycle.Cycle, totals []float64, a, b int) int {
	for _, d := range [...]float64{
		totals[a] - totals[b],
		NewPrefill(c, b) - NewPrefill(c, a),
		float64(c.At(b).Load.Requests - c.At(a).Load.Requests),
	} {
		if d > 0 {
			return 1
		}
		if d < 0 {
			return -1
		}
	}
	return 0
}

// turns picks among the candidates tied with at, round robin.
func (u *Unified) turns(c *cycle.Cycle, totals []float64, at int32, tied int) int32 {
	skip := int((u.turn.Add(1) - 1) % uint64(tied))
	for k := range totals {
		if u.compare(c, totals, k, int(at)) != 0 {
			continue
		}
		if skip == 0 {
			return int32(k)
		}
		skip--
	}
	return at
}
