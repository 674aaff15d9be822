package plugins

import (
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

type affinityParams struct {
	AffinityThreshold           float64 `json:"affinityThreshold"`
	ExplorationProbability      float64 `json:"explorationProbability"`
	MaxTTFTPenaltyMs            float64 `json:"maxTTFTPenaltyMs"`
	PeakPrefillThroughput       float64 `json:"peakPrefillThroughput,omitempty"` // learned here
	PrefixMatchInfoProducerName string  `json:"prefixMatchInfoProducerName,omitempty"`
}

// prefixAffinity keeps the endpoints that hold at least the threshold of the
// prompt. It keeps everybody when there is none, when the best of them is
// expected to answer too much later than the best of the others, and now and
// then, so that prefixes spread.
type prefixAffinity struct{ affinityParams }

func newPrefixAffinity(p affinityParams) (plugin.Plugin, error) {
	return plugin.Plugin{Filter: prefixAffinity{p}}, plugin.Faults(
		plugin.Require(p.AffinityThreshold >= 0 && p.AffinityThreshold <= 1, "affinityThreshold", "must be between 0 and 1"),
		plugin.Require(p.ExplorationProbability >= 0 && p.ExplorationProbability <= 1, "explorationProbability", "must be between 0 and 1"),
		plugin.Require(p.MaxTTFTPenaltyMs >= 0, "maxTTFTPenaltyMs", "must not be negative"))
}

// Filter implements picker.Filter.
func (f prefixAffinity) Filter(c *picker.Cycle, keep []bool) {
	in := float64(max(c.Request.InputTokens, 1))
	sticky, rest := far, far // best expected first tokens
	n := 0
	for k := range keep {
		keep[k] = c.Held(k)/in >= f.AffinityThreshold
		ttft := expected(c, k).TTFT()
		if keep[k] {
			sticky, n = min(sticky, ttft), n+1
		} else {
			rest = min(rest, ttft)
		}
	}
	tooLate := f.MaxTTFTPenaltyMs > 0 && n < len(keep) && sticky-rest > f.MaxTTFTPenaltyMs/1e3
	if n == 0 || tooLate || c.Float64() < f.ExplorationProbability {
		for k := range keep {
			keep[k] = true
		}
	}
}

// far is later than any prediction.
const far = 1e18

// expected returns what the cost model says about the request at candidate k.
func expected(c *picker.Cycle, k int) picker.Prediction {
	v := c.At(k)
	return picker.Prediction{Wait: v.Cost.Wait(&v.Load, c.Now), Own: v.Cost.Prefill(c.Work(k)), Base: v.Cost.Base}
}

// expectedStep returns the seconds per token that the request would see at
// candidate k.
func expectedStep(c *picker.Cycle, k int) float64 {
	v := c.At(k)
	sequences := float64(v.Load.Requests - v.Load.Waiting + 1)
	return v.Cost.StepOf(sequences, float64(v.Load.Context+int64(c.Request.InputTokens)))
}
