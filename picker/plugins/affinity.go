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

	MaxTokensInFlightPenalty      int64  `json:"maxTokensInFlightPenalty,omitempty"` // of an older generation
	PrefillCalibrationFile        string `json:"prefillCalibrationFile,omitempty"`
	PrefillCalibrationFingerprint string `json:"prefillCalibrationFingerprint,omitempty"`
	PrefillCalibrationRequired    bool   `json:"prefillCalibrationRequired,omitempty"`
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

// newAffinityType builds the filter. A written throughput has precedence over a measured one.
func newAffinityType(params *plugin.Params) (plugin.Plugin, error) {
	return plugin.WithParams(affinityDefaults, func(p affinityParams) (plugin.Plugin, error) {
		problem, measured := p.calibrated(params.Written("peakPrefillThroughput"))
		if measured > 0 {
			p.PeakPrefillThroughput = measured
			params.Used = &p
		}
		sourced, timed := params.Written("ttftSource"), params.Written("maxTTFTPenaltyMs") && p.MaxTTFTPenaltyMs > 0
		if p.MaxTokensInFlightPenalty > 0 && !sourced {
			p.MaxTTFTPenaltyMs = 0 // that generation knew times only from a predictor
		}
		out, err := newPrefixAffinity(p)
		if problem != "" {
			out.Differs = append(out.Differs, "the measured throughput is not applied: "+problem)
		}
		return out, plugin.Faults(err,
			plugin.Require(p.MaxTokensInFlightPenalty >= 0, "maxTokensInFlightPenalty", "must not be negative"),
			plugin.Require(problem == "" || !p.PrefillCalibrationRequired, "prefillCalibrationRequired", "does not hold: "+problem),
			plugin.Foreign(p.MaxTokensInFlightPenalty > 0 && timed && !sourced, "maxTTFTPenaltyMs", plugin.Replacement{
				Use:  "use maxTokensInFlightPenalty alone, or add ttftSource: latencyPredictor",
				Lost: "nothing with a predictor; without one this bound never applied",
			}))
	})(params)
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
	sticky, rest := best{far, far}, best{far, far}
	n := 0
	for k := range keep {
		keep[k] = held[k]/in >= f.AffinityThreshold
		if keep[k] {
			sticky.add(f.ttft(c, k), c.At(k).Load.Prefill)
			n++
		} else {
			rest.add(f.ttft(c, k), c.At(k).Load.Prefill)
		}
	}
	known := f.TTFTSource == byThroughput || learned(c)
	others := n < len(keep)
	tooLate := others && known && f.MaxTTFTPenaltyMs > 0 && sticky.ttft-rest.ttft > f.MaxTTFTPenaltyMs/1e3
	tooBusy := others && f.MaxTokensInFlightPenalty > 0 && sticky.tokens-rest.tokens > float64(f.MaxTokensInFlightPenalty)
	if n == 0 || tooLate || tooBusy || c.Float64() < f.ExplorationProbability {
		for k := range keep {
			keep[k] = true
		}
	}
}

// best has the least first-token time, and the least number of uncomputed prompt tokens, of some
// endpoints.
type best struct{ ttft, tokens float64 }

func (b *best) add(ttft float64, tokens int64) {
	b.ttft, b.tokens = min(b.ttft, ttft), min(b.tokens, float64(tokens))
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
