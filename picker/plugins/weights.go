package plugins

import (
	"math"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

type attributeWeightParams struct {
	AttributeKey string             `json:"attributeKey"`
	Producer     string             `json:"producer,omitempty"`
	Weights      map[string]float64 `json:"weights"`
}

// labelWeights scores the value of a label by a table, scaled so that the best value has 1. An
// endpoint without the label, or with a value that the table lacks, has the lowest score.
type labelWeights struct {
	label   string // "": no label is bound, and all endpoints have the lowest score
	weights map[string]float64
	lowest  float64
}

func newAttributeWeight(p attributeWeightParams) (plugin.Plugin, error) {
	most, least, sane := 0., math.Inf(1), len(p.Weights) > 0
	for _, w := range p.Weights {
		most, least = max(most, w), min(least, w)
		sane = sane && w > 0 && !math.IsInf(w, 0)
	}
	s := labelWeights{weights: make(map[string]float64, len(p.Weights)), lowest: least / most}
	for value, w := range p.Weights {
		s.weights[value] = w / most
		sane = sane && s.weights[value] > 0
	}
	return plugin.Plugin{
			Scorer: s, Attribute: &plugin.Attribute{Key: p.AttributeKey, Producer: p.Producer},
			BindLabel: func(label string) plugin.Plugin {
				bound := s
				bound.label = label
				return plugin.Plugin{Scorer: bound}
			},
		}, plugin.Faults(
			plugin.Require(p.AttributeKey != "", "attributeKey", "is required"),
			plugin.Require(sane, "weights", "must map values to finite numbers above 0"))
}

// Score implements cycle.Scorer.
func (s labelWeights) Score(c *cycle.Cycle, scores []float64) {
	for k := range scores {
		scores[k] = s.lowest
		if s.label == "" {
			continue
		}
		if value, ok := c.At(k).Label(s.label); ok {
			if w, listed := s.weights[value]; listed {
				scores[k] = w
			}
		}
	}
}
