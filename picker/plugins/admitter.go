package plugins

import (
	"math"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

type probabilisticParams struct {
	QueueDepthThreshold  float64 `json:"queueDepthThreshold"`
	KVCacheUtilThreshold float64 `json:"kvCacheUtilThreshold"`
	Power                float64 `json:"power"`
	K                    float64 `json:"k"`
}

var usualProbabilistic = probabilisticParams{QueueDepthThreshold: 5, KVCacheUtilThreshold: .8, Power: 5, K: 300}

// newProbabilistic returns an admitter that refuses requests of negative priority at random: with
// probability min(k × s^power, 1), where s is the mean pressure of the candidates. The pressure of one
// is the larger of its waiting requests and its cache use, each relative to its threshold, and 1
// without gauges.
func newProbabilistic(p probabilisticParams) (plugin.Plugin, error) {
	positive := func(v float64, name string) error { return plugin.Require(v > 0, name, "must be positive") }
	admit := func(c *cycle.Cycle) error {
		if c.Request.Priority >= 0 || c.Len() == 0 {
			return nil
		}
		sum := 0.0
		for k := range c.Len() {
			pressure := 1.0
			if v := c.At(k); v.Sampled {
				pressure = max(float64(v.Waiting)/p.QueueDepthThreshold, v.KVUse/p.KVCacheUtilThreshold)
			}
			sum += max(pressure, 0)
		}
		mean := sum / float64(c.Len())
		if chance := min(p.K*math.Pow(mean, p.Power), 1); c.Float64() < chance {
			return request.Errorf(request.ReasonSaturated, "the pool is loaded, and requests of priority %d are refused at random (now %.0f%%)", c.Request.Priority, 100*chance)
		}
		return nil
	}
	return plugin.Plugin{Admit: admit}, plugin.Faults(positive(p.QueueDepthThreshold, "queueDepthThreshold"), positive(p.KVCacheUtilThreshold, "kvCacheUtilThreshold"),
		positive(p.Power, "power"), positive(p.K, "k"))
}
