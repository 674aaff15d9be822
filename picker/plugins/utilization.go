package plugins

import (
	"fmt"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

type utilizationFilterParams struct {
	Conditions               []condition `json:"conditions"`
	FallbackOnEmpty          bool        `json:"fallbackOnEmpty"`
	InFlightLoadProducerName string      `json:"inFlightLoadProducerName,omitempty"`
}

type condition struct {
	Metric   string  `json:"metric"`
	MaxValue float64 `json:"maxValue"`
}

// conditionMetrics are the metrics that a condition can bound.
var conditionMetrics = map[string]func(*cycle.View) float64{
	"active-requests":      func(v *cycle.View) float64 { return float64(v.Load.Requests) },
	"running-requests":     running,
	"waiting-queue":        waiting,
	"kv-cache-utilization": func(v *cycle.View) float64 { return v.KVUse },
}

type bound struct {
	value func(*cycle.View) float64
	limit float64
}

// utilizationFilter excludes endpoints above any of its bounds.
type utilizationFilter struct {
	bounds   []bound
	failOpen bool
}

func newUtilizationFilter(p utilizationFilterParams) (plugin.Plugin, error) {
	f := utilizationFilter{failOpen: p.FallbackOnEmpty}
	errs := []error{plugin.Require(len(p.Conditions) > 0, "conditions", "must name at least one")}
	for i, c := range p.Conditions {
		at := fmt.Sprintf("conditions[%d]", i)
		value, ok := conditionMetrics[c.Metric]
		errs = append(errs,
			plugin.Require(ok, at+".metric", "must be active-requests, running-requests, waiting-queue or kv-cache-utilization"),
			plugin.Require(c.MaxValue >= 0, at+".maxValue", "must not be negative"),
			plugin.Require(c.Metric != "kv-cache-utilization" || c.MaxValue <= 1, at+".maxValue", "must be between 0 and 1"))
		f.bounds = append(f.bounds, bound{value, c.MaxValue})
	}
	return plugin.Plugin{Filter: f}, plugin.Faults(errs...)
}

// Filter implements cycle.Filter.
func (f utilizationFilter) Filter(c *cycle.Cycle, keep []bool) {
	for _, b := range f.bounds {
		for k := range keep {
			keep[k] = keep[k] && b.value(c.At(k)) <= b.limit
		}
	}
	if f.failOpen {
		cycle.KeepAllIfNone(keep)
	}
}
