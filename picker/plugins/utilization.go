package plugins

import (
	"fmt"
	"time"

	"github.com/grapevine-epp/grapevine/picker"
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

// conditionMetrics are what a condition can bound.
var conditionMetrics = map[string]func(*picker.View) float64{
	"active-requests":      func(v *picker.View) float64 { return float64(v.Load.Requests) },
	"running-requests":     running,
	"waiting-queue":        waiting,
	"kv-cache-utilization": func(v *picker.View) float64 { return v.KVUse },
}

type bound struct {
	value func(*picker.View) float64
	limit float64
}

// utilizationFilter leaves out endpoints over any of its bounds.
type utilizationFilter struct {
	bounds   []bound
	failOpen bool
}

func newUtilizationFilter(p utilizationFilterParams) (Plugin, error) {
	f := utilizationFilter{failOpen: p.FallbackOnEmpty}
	errs := []error{Require(len(p.Conditions) > 0, "conditions", "must name at least one")}
	for i, c := range p.Conditions {
		at := fmt.Sprintf("conditions[%d]", i)
		value, ok := conditionMetrics[c.Metric]
		errs = append(errs,
			Require(ok, at+".metric", "must be active-requests, running-requests, waiting-queue or kv-cache-utilization"),
			Require(c.MaxValue >= 0, at+".maxValue", "must not be negative"),
			Require(c.Metric != "kv-cache-utilization" || c.MaxValue <= 1, at+".maxValue", "must be between 0 and 1"))
		f.bounds = append(f.bounds, bound{value, c.MaxValue})
	}
	return Plugin{Filter: f}, Faults(errs...)
}

// Filter implements picker.Filter.
func (f utilizationFilter) Filter(c *picker.Cycle, keep []bool) {
	for _, b := range f.bounds {
		for k := range keep {
			keep[k] = keep[k] && b.value(c.At(k)) <= b.limit
		}
	}
	if f.failOpen {
		openIfNone(keep)
	}
}

// openIfNone keeps everybody when nobody is left.
func openIfNone(keep []bool) {
	for _, kept := range keep {
		if kept {
			return
		}
	}
	for k := range keep {
		keep[k] = true
	}
}

type utilizationParams struct {
	QueueDepthThreshold       int     `json:"queueDepthThreshold"`
	KVCacheUtilThreshold      float64 `json:"kvCacheUtilThreshold"`
	MetricsStalenessThreshold string  `json:"metricsStalenessThreshold"`
	Headroom                  float64 `json:"headroom"`
	StalenessPolicy           string  `json:"stalenessPolicy,omitempty"`
}

// utilization judges endpoints by their gauges: the larger of queue over its
// threshold and KV use over its own. One without fresh gauges counts as
// saturated, unless stale gauges are to be ignored.
type utilization struct {
	queue, kvUse, headroom float64
	stale                  time.Duration
	ignoreStale            bool
}

func newUtilization(p utilizationParams) (Plugin, error) {
	stale, _ := time.ParseDuration(p.MetricsStalenessThreshold)
	u := utilization{
		float64(p.QueueDepthThreshold), p.KVCacheUtilThreshold, p.Headroom, stale, p.StalenessPolicy == "ignore",
	}
	return Plugin{Filter: u, Detector: u.saturation}, Faults(
		Require(p.QueueDepthThreshold > 0, "queueDepthThreshold", "must be positive"),
		Require(p.KVCacheUtilThreshold > 0 && p.KVCacheUtilThreshold <= 1, "kvCacheUtilThreshold", "must be above 0 and at most 1"),
		Require(p.Headroom >= 0, "headroom", "must not be negative"),
		duration("metricsStalenessThreshold", p.MetricsStalenessThreshold),
		Require(stale > 0, "metricsStalenessThreshold", "must be positive"),
		Require(p.StalenessPolicy == "" || p.StalenessPolicy == "ignore" || p.StalenessPolicy == "saturated",
			"stalenessPolicy", "must be saturated or ignore"))
}

func (u utilization) isStale(v *picker.View) bool { return !v.Sampled || v.Age > u.stale }

func (u utilization) saturation(c *picker.Cycle) float64 {
	sum, n := 0.0, c.Len()
	for k := range n {
		v := c.At(k)
		switch {
		case !u.isStale(v) || (u.ignoreStale && v.Sampled):
			sum += max(float64(v.Waiting)/u.queue, v.KVUse/u.kvUse)
		case !u.ignoreStale:
			sum++
		}
	}
	return sum / float64(max(n, 1))
}

// Filter implements picker.Filter. It keeps everybody when nobody is within
// the limits.
func (u utilization) Filter(c *picker.Cycle, keep []bool) {
	queue, kvUse := u.queue*(1+u.headroom), min(u.kvUse*(1+u.headroom), 1)
	for k := range keep {
		v := c.At(k)
		keep[k] = (u.ignoreStale || !u.isStale(v)) && float64(v.Waiting) <= queue && v.KVUse <= kvUse
	}
	openIfNone(keep)
}

type concurrencyParams struct {
	ConcurrencyMode     string  `json:"concurrencyMode"`
	MaxConcurrency      int64   `json:"maxConcurrency"`
	MaxTokenConcurrency int64   `json:"maxTokenConcurrency"`
	Headroom            float64 `json:"headroom"`
	CapacityPerEndpoint int64   `json:"capacityPerEndpoint,omitempty"`
}

// concurrency judges endpoints by the book of all replicas: what is in flight
// over what may be.
type concurrency struct {
	tokens          bool
	limit, headroom float64
}

func newConcurrency(p concurrencyParams) (Plugin, error) {
	u := concurrency{p.ConcurrencyMode == "tokens", float64(p.MaxConcurrency), p.Headroom}
	if p.CapacityPerEndpoint > 0 {
		u.limit = float64(p.CapacityPerEndpoint)
	}
	if u.tokens {
		u.limit = float64(p.MaxTokenConcurrency)
	}
	return Plugin{Filter: u, Detector: u.saturation}, Faults(
		Require(p.ConcurrencyMode == "requests" || u.tokens, "concurrencyMode", "must be requests or tokens"),
		Require(p.MaxConcurrency > 0, "maxConcurrency", "must be positive"),
		Require(p.MaxTokenConcurrency > 0, "maxTokenConcurrency", "must be positive"),
		Require(p.Headroom >= 0, "headroom", "must not be negative"))
}

func (u concurrency) load(v *picker.View) float64 {
	if u.tokens {
		return float64(v.Load.Tokens)
	}
	return float64(v.Load.Requests)
}

func (u concurrency) saturation(c *picker.Cycle) float64 {
	sum, n := 0.0, c.Len()
	for k := range n {
		sum += u.load(c.At(k))
	}
	return sum / (u.limit * float64(max(n, 1)))
}

// Filter implements picker.Filter.
func (u concurrency) Filter(c *picker.Cycle, keep []bool) {
	for k := range keep {
		keep[k] = u.load(c.At(k)) <= u.limit*(1+u.headroom)
	}
	openIfNone(keep)
}
