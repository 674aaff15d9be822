package plugins

import (
	"math"
	"slices"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

type lowQueueParams struct {
	Threshold float64 `json:"threshold"`
}

// usualLowQueue has the threshold of the extension project's releases before 0.5.
var usualLowQueue = lowQueueParams{Threshold: 128}

func newLowQueue(p lowQueueParams) (plugin.Plugin, error) {
	return plugin.Plugin{Filter: utilizationFilter{bounds: []bound{{waiting, p.Threshold}}}}, nil
}

// firstRange keeps the endpoints whose value is in the lowest of as many equal ranges as there are
// candidates, between the least and the greatest value.
type firstRange struct {
	value func(*cycle.View) float64
	whole bool // the ranges are whole numbers, rounded down
}

// Filter implements cycle.Filter.
func (f firstRange) Filter(c *cycle.Cycle, keep []bool) {
	low, high := math.Inf(1), 0.
	for k := range keep {
		v := f.value(c.At(k))
		low, high = min(low, v), max(high, v)
	}
	width := (high - low) / float64(len(keep))
	if f.whole {
		width = math.Floor(width)
	}
	for k := range keep {
		keep[k] = f.value(c.At(k)) <= low+width
	}
}

func kvUse(v *cycle.View) float64 { return v.KVUse }

type loraFilterParams struct {
	Threshold float64 `json:"threshold"`
}

// usualLoRAFilter has the probability of the extension project's releases before 0.5.
var usualLoRAFilter = loraFilterParams{Threshold: .999}

// loraFilter keeps the endpoints that run the request's adapter or have a request waiting for it. With
// the remaining probability, and if there are none, it keeps those with room for another adapter.
type loraFilter struct{ affinity float64 }

func newLoRAFilter(p loraFilterParams) (plugin.Plugin, error) {
	return plugin.Plugin{Filter: loraFilter{p.Threshold}}, plugin.Require(p.Threshold >= 0 && p.Threshold <= 1, "threshold", "must be from 0 to 1")
}

// Filter implements cycle.Filter.
func (f loraFilter) Filter(c *cycle.Cycle, keep []bool) {
	const has, room = 1, 2
	adapter := c.Request.Adapter
	if adapter == "" {
		adapter = c.Request.Target
	}
	group, found := c.Scratch(len(keep)), [3]bool{}
	for k := range keep {
		l := c.At(k).LoRA()
		switch {
		case l == nil:
			group[k] = 0
		case slices.Contains(l.Running, adapter) || slices.Contains(l.Waiting, adapter):
			group[k] = has
		case len(l.Running)+len(l.Waiting) < l.Max:
			group[k] = room
		default:
			group[k] = 0
		}
		found[int(group[k])] = true
	}
	want := room
	if found[has] && (!found[room] || c.Float64() < f.affinity) {
		want = has
	}
	for k := range keep {
		keep[k] = int(group[k]) == want
	}
}
