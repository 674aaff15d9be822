package plugins

import (
	"slices"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// loraScorer prefers endpoints by the state of the request's adapter: 1 if it is loaded, 0.8 if
// there is room for another, 0.6 if it is waiting, otherwise 0. An endpoint that reports no
// adapters scores 0.
type loraScorer struct{}

// Score implements cycle.Scorer.
func (loraScorer) Score(c *cycle.Cycle, scores []float64) {
	adapter := c.Request.Adapter
	if adapter == "" {
		adapter = c.Request.Target
	}
	for k := range scores {
		scores[k] = loraScore(c.At(k).LoRA(), adapter)
	}
}

func loraScore(l *endpoint.LoRA, adapter string) float64 {
	switch {
	case l == nil:
		return 0
	case slices.Contains(l.Running, adapter):
		return 1
	case len(l.Running)+len(l.Waiting) < l.Max:
		return .8
	case slices.Contains(l.Waiting, adapter):
		return .6
	default:
		return 0
	}
}
