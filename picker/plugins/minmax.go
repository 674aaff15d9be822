package plugins

import (
	"slices"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// fewest scores counts by min-max normalization: 1 for the smallest, 0 for the largest, and 1 for
// all if they are equal.
type fewest func(v *cycle.View) float64

// Score implements cycle.Scorer.
func (f fewest) Score(c *cycle.Cycle, scores []float64) {
	for k := range scores {
		scores[k] = f(c.At(k))
	}
	leastFirst(scores)
}

// leastFirst replaces values by scores: 1 for the smallest value, 0 for the largest, in proportion
// between them, and 1 for all if they are equal.
func leastFirst(values []float64) {
	if len(values) == 0 {
		return
	}
	low, high := slices.Min(values), slices.Max(values)
	for k, n := range values {
		if high == low {
			values[k] = 1
		} else {
			values[k] = (high - n) / (high - low)
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
