package plugins

import (
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// fewest scores counts by min-max: the smallest gets 1, the largest 0, and all
// get 1 when they are equal.
type fewest func(v *cycle.View) float64

// Score implements cycle.Scorer.
func (f fewest) Score(c *cycle.Cycle, scores []float64) {
	if len(scores) == 0 {
		return
	}
	low, high := f(c.At(0)), f(c.At(0))
	for k := range scores {
		n := f(c.At(k))
		scores[k] = n
		low, high = min(low, n), max(high, n)
	}
	for k, n := range scores {
		if high == low {
			scores[k] = 1
		} else {
			scores[k] = (high - n) / (high - low)
		}
	}
}

// waiting is the number of requests that wait at an endpoint: what the engine
// said last, or the book's count while it has said nothing.
func waiting(v *cycle.View) float64 {
	if v.Sampled {
		return float64(v.Waiting)
	}
	return float64(v.Load.Waiting)
}

// running is the number of requests that an endpoint works on, by the engine's
// word or, failing that, by the book.
func running(v *cycle.View) float64 {
	if v.Sampled {
		return float64(v.Running)
	}
	return float64(v.Load.Requests - v.Load.Waiting)
}

// queueParams are accepted because public files of older P/D deployments have
// them at queue-scorer by mistake; they mean nothing to it.
type queueParams struct {
	HashBlockSize          int `json:"hashBlockSize,omitempty"`
	MaxPrefixBlocksToMatch int `json:"maxPrefixBlocksToMatch,omitempty"`
	LRUCapacityPerServer   int `json:"lruCapacityPerServer,omitempty"`
}

func newQueue(queueParams) (plugin.Plugin, error) { return plugin.Plugin{Scorer: fewest(waiting)}, nil }
