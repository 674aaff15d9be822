package plugins

import (
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/plugins/policies"
)

// kvUseScorer scores the free share of the KV cache. An endpoint without gauges counts as free.
type kvUseScorer struct{}

// Score implements cycle.Scorer.
func (kvUseScorer) Score(c *cycle.Cycle, scores []float64) {
	for k := range scores {
		scores[k] = 1 - min(max(c.At(k).KVUse, 0), 1)
	}
}

type tokenLoadParams struct {
	QueueThresholdTokens     int64  `json:"queueThresholdTokens"`
	InFlightLoadProducerName string `json:"inFlightLoadProducerName,omitempty"`
}

const defaultQueueTokens = 4194304

// tokenLoadScorer scores 1 − tokens / threshold, where tokens are the endpoint's uncomputed prompt
// tokens plus the request's uncached ones.
type tokenLoadScorer struct{ threshold float64 }

func newTokenLoad(p tokenLoadParams) (plugin.Plugin, error) {
	if p.QueueThresholdTokens <= 0 {
		p.QueueThresholdTokens = defaultQueueTokens
	}
	return plugin.Plugin{Scorer: tokenLoadScorer{float64(p.QueueThresholdTokens)}}, nil
}

// Score implements cycle.Scorer.
func (s tokenLoadScorer) Score(c *cycle.Cycle, scores []float64) {
	for k := range scores {
		tokens := float64(c.At(k).Load.Prefill) + policies.NewPrefill(c, k)
		scores[k] = 1 - min(tokens/s.threshold, 1)
	}
}

type loadAwareParams struct {
	Threshold int `json:"threshold"`
}

const defaultLoadThreshold = 128

// loadAwareScorer scores 0.5 for an empty queue, decreasing to 0 at the threshold.
type loadAwareScorer struct{ threshold float64 }

func newLoadAware(p loadAwareParams) (plugin.Plugin, error) {
	if p.Threshold <= 0 {
		p.Threshold = defaultLoadThreshold
	}
	return plugin.Plugin{Scorer: loadAwareScorer{float64(p.Threshold)}}, nil
}

// Score implements cycle.Scorer.
func (s loadAwareScorer) Score(c *cycle.Cycle, scores []float64) {
	for k := range scores {
		scores[k] = 0.5 * (1 - min(waiting(c.At(k)), s.threshold)/s.threshold)
	}
}

type activeParams struct {
	RequestTimeout           string  `json:"requestTimeout,omitempty"` // ignored: the load tracker removes requests when they end
	IdleThreshold            int64   `json:"idleThreshold"`
	MaxBusyScore             float64 `json:"maxBusyScore"`
	InFlightLoadProducerName string  `json:"inFlightLoadProducerName,omitempty"`
}

// activeScorer scores idle endpoints 1, and busy ones (most − own) / most times the maximum busy
// score.
type activeScorer struct {
	idle int64
	busy float64
}

func newActive(p activeParams) (plugin.Plugin, error) {
	if p.MaxBusyScore < 0 || p.MaxBusyScore > 1 {
		p.MaxBusyScore = 1
	}
	return plugin.Plugin{Scorer: activeScorer{max(p.IdleThreshold, 0), p.MaxBusyScore}}, plugin.Duration("requestTimeout", p.RequestTimeout)
}

// Score implements cycle.Scorer.
func (s activeScorer) Score(c *cycle.Cycle, scores []float64) {
	most := int64(0)
	for k := range scores {
		most = max(most, c.At(k).Load.Requests)
	}
	for k := range scores {
		n := c.At(k).Load.Requests
		if n <= s.idle {
			scores[k] = 1
		} else {
			scores[k] = float64(most-n) / float64(most) * s.busy
		}
	}
}
