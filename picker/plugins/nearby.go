package plugins

import (
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

type headerLabelParams struct {
	HeaderName string `json:"headerName"`
	LabelKey   string `json:"labelKey"`
}

// headerLabel scores 1 for endpoints whose label equals a request header.
type headerLabel struct{ header, label string }

func newHeaderLabel(p headerLabelParams) (plugin.Plugin, error) {
	return plugin.Plugin{Scorer: headerLabel{lower(p.HeaderName), p.LabelKey}}, plugin.Faults(
		plugin.Require(p.HeaderName != "", "headerName", "is needed"), plugin.Require(p.LabelKey != "", "labelKey", "is needed"))
}

// Score implements cycle.Scorer.
func (s headerLabel) Score(c *cycle.Cycle, scores []float64) {
	clear(scores)
	if c.Request.Headers == nil {
		return
	}
	want := c.Request.Headers.Get(s.header)
	if want == "" {
		return
	}
	for k := range scores {
		if v, ok := c.At(k).Label(s.label); ok && v == want {
			scores[k] = 1
		}
	}
}

type topologyScorerParams struct {
	TopologyProducerName string `json:"topologyProducerName,omitempty"`
}

// topologyScorer scores the closeness of an endpoint to the one chosen before, by the closest level
// that they share.
type topologyScorer struct{ labels plugin.TopologyLabels }

func newTopologyScorer(topologyScorerParams) (plugin.Plugin, error) {
	bind := func(labels plugin.TopologyLabels) plugin.Plugin {
		return plugin.Plugin{Scorer: topologyScorer{labels}}
	}
	var usual plugin.TopologyLabels
	for i, level := range endpoint.Levels {
		usual[i] = level.Label
	}
	return plugin.Plugin{Scorer: topologyScorer{usual}, BindTopology: bind}, nil
}

// levelScores are the scores of endpoint.Levels.
var levelScores = [len(endpoint.Levels)]float64{1, .2, .05, .02}

// Score implements cycle.Scorer.
func (s topologyScorer) Score(c *cycle.Cycle, scores []float64) {
	clear(scores)
	if c.Peer == nil {
		return
	}
	for k := range scores {
		for i, label := range s.labels {
			a, _ := c.Peer.Label(label)
			if b, ok := c.At(k).Label(label); ok && a != "" && a == b {
				scores[k] = levelScores[i]
				break
			}
		}
	}
}
