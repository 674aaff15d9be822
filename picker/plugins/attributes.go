package plugins

import (
	"math"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// attributeKeyProblem: other pickers write keys with a slash together with the producer.
const attributeKeyProblem = "contains a slash: write producer next to it (an empty one for any producer)"

type attributeScorerParams struct {
	AttributeKey string                `json:"attributeKey"`
	Producer     *string               `json:"producer,omitempty"`
	Algorithm    attributeScoringParam `json:"algorithm"`
}

type attributeScoringParam struct {
	Type          string `json:"type"`
	Normalization struct {
		FixedRange *struct {
			Min float64 `json:"min"`
			Max float64 `json:"max"`
		} `json:"fixedRange,omitempty"`
		AdaptiveRange *struct{} `json:"adaptiveRange,omitempty"`
	} `json:"normalization,omitempty"`
}

// attributeScorer scores a number of the endpoint on a linear scale from 0 to 1. An endpoint without
// the number has 0.
type attributeScorer struct {
	number    plugin.Number // nil: no endpoint has the number
	lower     bool          // the lowest number has 1
	fixed     bool          // the scale is from low to high, else from the lowest to the highest number
	low, high float64
}

func newAttributeScorer(p attributeScorerParams) (plugin.Plugin, error) {
	const lower, higher = "linear_lower_is_better", "linear_higher_is_better"
	a, n := p.Algorithm, p.Algorithm.Normalization
	s := attributeScorer{lower: a.Type == lower}
	if n.FixedRange != nil {
		s.fixed, s.low, s.high = true, n.FixedRange.Min, n.FixedRange.Max
	}
	read, problems := attributeOf("attributeKey", p.AttributeKey, p.Producer)
	return plugin.Plugin{
			Scorer: s, Attribute: read,
			BindNumber: func(number plugin.Number) plugin.Plugin {
				bound := s
				bound.number = number
				return plugin.Plugin{Scorer: bound}
			},
		}, plugin.Faults(append(problems,
			plugin.Require(a.Type == lower || a.Type == higher, "algorithm.type", "must be "+lower+" or "+higher),
			plugin.Require(n.FixedRange == nil || n.AdaptiveRange == nil, "algorithm.normalization", "cannot have both fixedRange and adaptiveRange"),
			plugin.Require(!s.fixed || s.low < s.high, "algorithm.normalization.fixedRange", "must have a min below max"))...)
}

// clusterScorer returns a scorer of a gauge that a cluster's endpoint picker publishes.
func clusterScorer(gauge string, s attributeScorer) plugin.Plugin {
	s.number = plugin.GaugeNumber(gauge)
	return plugin.Plugin{Scorer: s, Gauges: []string{gauge}}
}

// attributeOf returns the attribute with a key in the parameter named field.
func attributeOf(field, key string, producer *string) (*plugin.Attribute, []error) {
	read := &plugin.Attribute{Key: key}
	if producer != nil {
		read.Producer = *producer
	}
	return read, []error{
		plugin.Require(key != "", field, "is required"),
		plugin.Require(producer != nil || !strings.Contains(key, "/"), field, attributeKeyProblem),
	}
}

// Score implements cycle.Scorer.
func (s attributeScorer) Score(c *cycle.Cycle, scores []float64) {
	low, high := s.low, s.high
	if !s.fixed {
		low, high = math.Inf(1), math.Inf(-1)
	}
	for k := range scores {
		value, ok := s.read(c.At(k))
		if scores[k] = value; !ok {
			scores[k] = math.NaN()
		} else if !s.fixed {
			low, high = min(low, value), max(high, value)
		}
	}
	for k, value := range scores {
		switch {
		case math.IsNaN(value):
			scores[k] = 0
		case high <= low:
			scores[k] = 1
		case s.lower:
			scores[k] = min(max((high-value)/(high-low), 0), 1)
		default:
			scores[k] = min(max((value-low)/(high-low), 0), 1)
		}
	}
}

func (s attributeScorer) read(v *cycle.View) (float64, bool) {
	if s.number == nil {
		return 0, false
	}
	return s.number(v)
}

type attributeFilterParams struct {
	Attribute       string  `json:"attribute"`
	Producer        *string `json:"producer,omitempty"`
	OnMissing       string  `json:"onMissing"`
	FallbackOnEmpty bool    `json:"fallbackOnEmpty"`
	Algorithm       struct {
		Type      string `json:"type"`
		Threshold struct {
			Operator string  `json:"operator"`
			Value    float64 `json:"value"`
		} `json:"threshold"`
	} `json:"algorithm"`
}

// comparisons are the operators of endpoint-attribute-filter.
var comparisons = map[string]func(value, limit float64) bool{
	"LessThan":           func(v, limit float64) bool { return v < limit },
	"LessThanOrEqual":    func(v, limit float64) bool { return v <= limit },
	"GreaterThan":        func(v, limit float64) bool { return v > limit },
	"GreaterThanOrEqual": func(v, limit float64) bool { return v >= limit },
	"Equal":              func(v, limit float64) bool { return v == limit },
	"NotEqual":           func(v, limit float64) bool { return v != limit },
}

// attributeFilter keeps the endpoints whose number compares true.
type attributeFilter struct {
	number      plugin.Number // nil: no endpoint has the number
	compare     func(value, limit float64) bool
	limit       float64
	keepMissing bool
	failOpen    bool // keeps all if it would keep none
}

func newAttributeFilter(p attributeFilterParams) (plugin.Plugin, error) {
	t := p.Algorithm.Threshold
	f := attributeFilter{compare: comparisons[t.Operator], limit: t.Value, keepMissing: p.OnMissing == "Pass", failOpen: p.FallbackOnEmpty}
	read, problems := attributeOf("attribute", p.Attribute, p.Producer)
	return plugin.Plugin{
			Filter: f, Attribute: read,
			BindNumber: func(number plugin.Number) plugin.Plugin {
				bound := f
				bound.number = number
				return plugin.Plugin{Filter: bound}
			},
		}, plugin.Faults(append(problems,
			plugin.Require(p.Algorithm.Type == "threshold", "algorithm.type", "must be threshold"),
			plugin.Require(f.compare != nil, "algorithm.threshold.operator",
				"must be LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual, Equal or NotEqual"),
			plugin.Require(p.OnMissing == "Pass" || p.OnMissing == "Fail", "onMissing", "must be Pass or Fail"))...)
}

// Filter implements cycle.Filter.
func (f attributeFilter) Filter(c *cycle.Cycle, keep []bool) {
	for k := range keep {
		keep[k] = keep[k] && f.keeps(c.At(k))
	}
	if f.failOpen {
		cycle.KeepAllIfNone(keep)
	}
}

func (f attributeFilter) keeps(v *cycle.View) bool {
	if f.number != nil {
		if value, ok := f.number(v); ok {
			return f.compare(value, f.limit)
		}
	}
	return f.keepMissing
}
