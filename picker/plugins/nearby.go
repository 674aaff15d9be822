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
type topologyScorer struct{}

func newTopologyScorer(topologyScorerParams) (plugin.Plugin, error) {
	return plugin.Plugin{Scorer: topologyScorer{}}, nil
}

// levelScores are the scores of endpoint.Levels.
var levelScores = [len(endpoint.Levels)]float64{1, .2, .05, .02}

// Score implements cycle.Scorer.
func (topologyScorer) Score(c *cycle.Cycle, scores []float64) {
	clear(scores)
	if c.Peer == nil {
		return
	}
	for k := range scores {
		for i, level := range endpoint.Levels {
			a, _ := c.Peer.Label(level.Label)
			if b, ok := c.At(k).Label(level.Label); ok && a != "" && a == b {
				scores[k] = levelScores[i]
				break
			}
		}
	}
}
