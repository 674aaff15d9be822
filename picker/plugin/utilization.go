package plugin

import (
	"time"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

type utilizationParams struct {
	QueueDepthThreshold       int     `json:"queueDepthThreshold"`
	KVCacheUtilThreshold      float64 `json:"kvCacheUtilThreshold"`
	MetricsStalenessThreshold string  `json:"metricsStalenessThreshold"`
	Headroom                  float64 `json:"headroom"`
	StalenessPolicy           string  `json:"stalenessPolicy,omitempty"`
}

// utilization rates endpoints by their gauges: the larger of queue length and KV-cache usage
// relative to their thresholds. An endpoint without fresh gauges counts as saturated, unless stale
// gauges are to be ignored.
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
	sizing := &rules.Sizing{Unit: rules.Learned, Queue: min(int64(p.QueueDepthThreshold), mostPlaces)}
	return Plugin{Filter: u, Detector: u.saturation, Sizing: sizing}, Faults(
		Require(p.QueueDepthThreshold > 0, "queueDepthThreshold", "must be positive"),
		Require(p.KVCacheUtilThreshold > 0 && p.KVCacheUtilThreshold <= 1, "kvCacheUtilThreshold", "must be above 0 and at most 1"),
		Require(p.Headroom >= 0, "headroom", "must not be negative"),
		Duration("metricsStalenessThreshold", p.MetricsStalenessThreshold),
		Require(stale > 0, "metricsStalenessThreshold", "must be positive"),
		Require(p.StalenessPolicy == "" || p.StalenessPolicy == "ignore" || p.StalenessPolicy == "saturated",
			"stalenessPolicy", "must be saturated or ignore"))
}

func (u utilization) isStale(v *cycle.View) bool { return !v.Sampled || v.Age > u.stale }

func (u utilization) saturation(c *cycle.Cycle) float64 {
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

// Filter implements cycle.Filter. It keeps endpoints below the limits, or all if there are none.
func (u utilization) Filter(c *cycle.Cycle, keep []bool) {
	queue, kvUse := u.queue*(1+u.headroom), u.kvUse*(1+u.headroom)
	for k := range keep {
		v := c.At(k)
		keep[k] = (u.ignoreStale || !u.isStale(v)) && float64(v.Waiting) < queue && v.KVUse < kvUse
	}
	cycle.KeepAllIfNone(keep)
}
