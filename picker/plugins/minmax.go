package plugins

import (
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// fewest scores counts by min-max normalization: 1 for the smallest, 0 for the largest, and 1 for
// all if they are equal.
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

// waiting returns the number of waiting requests at an endpoint: the engine's gauge, or the tracked
// count without one.
func waiting(v *cycle.View) float64 {
	if v.Sampled {
		return float64(v.Waiting)
	}
	return float64(v.Load.Waiting)
}

// running returns the number of running requests at an endpoint: the engine's gauge, or the tracked
// count without one.
func running(v *cycle.View) float64 {
	if v.Sampled {
		return float64(v.Running)
	}
	return float64(v.Load.Requests - v.Load.Waiting)
}

// queueParams are accepted and ignored: public files of older P/D deployments set them at
// queue-scorer by mistake.
type queueParams struct {
	HashBlockSize          int `json:"hashBlockSize,omitempty"`
	MaxPrefixBlocksToMatch int `json:"maxPrefixBlocksToMatch,omitempty"`
	LRUCapacityPerServer   int `json:"lruCapacityPerServer,omitempty"`
}

func newQueue(queueParams) (plugin.Plugin, error) { return plugin.Plugin{Scorer: fewest(waiting)}, nil }
