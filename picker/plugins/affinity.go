package plugins

import (
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

type affinityParams struct {
	AffinityThreshold         float64 `json:"affinityThreshold"`
	ExplorationProbability    float64 `json:"explorationProbability"`
	MaxTTFTPenaltyMs          float64 `json:"maxTTFTPenaltyMs"`
	TTFTSource                string  `json:"ttftSource"`
	PeakPrefillThroughput     float64 `json:"peakPrefillThroughput"` // tokens per second
	PrefixProducer            string  `json:"prefixMatchInfoProducerName,omitempty"`
	InFlightLoadProducerName  string  `json:"inFlightLoadProducerName,omitempty"`
	LatencyPredictionProducer string  `json:"latencyPredictionInfoProducerName,omitempty"`
}

// Values of ttftSource of the prefix-cache-affinity-filter.
const (
	byThroughput = "prefillThroughput"
	byPredictor  = "latencyPredictor"
)

var affinityDefaults = affinityParams{AffinityThreshold: .8, MaxTTFTPenaltyMs: 18000, TTFTSource: byThroughput, PeakPrefillThroughput: 15928}

// prefixAffinity keeps the endpoints that hold at least the threshold share of the prompt. It keeps
// all endpoints if there are none, or if the best holder's first-token time is too far above the
// best of the others. With a small probability it also keeps all, so that prefixes spread. The
// first-token time is the queued work divided by the peak throughput, or the learned prediction.
type prefixAffinity struct {
	affinityParams
	holds *plugin.Holdings
}

func newPrefixAffinity(p affinityParams) (plugin.Plugin, error) {
	bind := func(h *plugin.Holdings) plugin.Plugin { return plugin.Plugin{Filter: prefixAffinity{p, h}} }
	out := bind(nil)
	out.Bind = bind
	return out, plugin.Faults(
		plugin.Require(p.AffinityThreshold <= 1, "affinityThreshold", "must be at most 1"),
		plugin.Require(p.ExplorationProbability >= 0 && p.ExplorationProbability <= 1, "explorationProbability", "must be between 0 and 1"),
		plugin.Require(p.MaxTTFTPenaltyMs >= 0, "maxTTFTPenaltyMs", "must not be negative"),
		plugin.Require(p.TTFTSource == byThroughput || p.TTFTSource == byPredictor, "ttftSource", "must be "+byThroughput+" or "+byPredictor),
		plugin.Require(p.PeakPrefillThroughput > 0 || p.TTFTSource == byPredictor, "peakPrefillThroughput", "must be positive"))
}

// Filter implements cycle.Filter.
func (f prefixAffinity) Filter(c *cycle.Cycle, keep []bool) {
	if len(keep) < 2 || f.AffinityThreshold <= 0 {
		return
	}
	held := holdings(c, f.holds, c.Scratch(len(keep)))
	in := float64(max(c.Request.InputTokens, 1))
	sticky, rest := far, far // best expected first-token times
	n := 0
	for k := range keep {
		keep[k] = held[k]/in >= f.AffinityThreshold
		ttft := f.ttft(c, k)
		if keep[k] {
			sticky, n = min(sticky, ttft), n+1
		} else {
			rest = min(rest, ttft)
		}
	}
	known := f.TTFTSource == byThroughput || learned(c)
	tooLate := known && f.MaxTTFTPenaltyMs > 0 && n < len(keep) && sticky-rest > f.MaxTTFTPenaltyMs/1e3
	if n == 0 || tooLate || c.Float64() < f.ExplorationProbability {
		for k := range keep {
			keep[k] = true
		}
	}
}

// Chosen implements cycle.Observer.
func (f prefixAffinity) Chosen(c *cycle.Cycle, ep *endpoint.Endpoint) {
	if f.holds != nil {
		f.holds.Chosen(c, ep)
	}
}

// ttft returns the expected first-token time at candidate k in seconds. By throughput, the
// request's own work is not included.
func (f prefixAffinity) ttft(c *cycle.Cycle, k int) float64 {
	if f.TTFTSource == byPredictor {
		return expected(c, k).TTFT()
	}
	return float64(c.At(k).Load.Prefill) / f.PeakPrefillThroughput
}

// far is later than any prediction.
const far = 1e18

// expected returns the cost model's prediction for the request at candidate k.
func expected(c *cycle.Cycle, k int) cycle.Prediction {
	v := c.At(k).Rank()
	return cycle.Prediction{Wait: v.Cost.Wait(&v.Load, c.Now), Own: v.Cost.Prefill(c.Work(k)), Base: v.Cost.Base}
}

// expectedStep returns the expected seconds per token of the request at candidate k.
func expectedStep(c *cycle.Cycle, k int) float64 {
	v := c.At(k).Rank()
	sequences := float64(v.Load.Requests - v.Load.Waiting + 1)
	return v.Cost.StepOf(sequences, float64(v.Load.Context+int64(c.Request.InputTokens)))
}
