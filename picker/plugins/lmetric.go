package plugins

import (
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

type lmetricParams struct {
	PrefixMatchInfoProducerName string `json:"prefixMatchInfoProducerName,omitempty"`
	InFlightLoadProducerName    string `json:"inFlightLoadProducerName,omitempty"` // ignored: there is one load tracker
}

// lmetricScorer scores the product of a request's uncached tokens and the endpoint's requests in
// flight, this one included, by min-max. The least product scores 1.
type lmetricScorer struct{ holds *plugin.Holdings }

func newLMetric(lmetricParams) (plugin.Plugin, error) {
	bind := func(h *plugin.Holdings) plugin.Plugin { return plugin.Plugin{Scorer: lmetricScorer{h}} }
	out := bind(nil)
	out.Bind = bind
	return out, nil
}

// Score implements cycle.Scorer.
func (s lmetricScorer) Score(c *cycle.Cycle, scores []float64) {
	in := float64(c.Request.InputTokens)
	for k, held := range holdings(c, s.holds, scores) {
		scores[k] = max(in-held, 0) * float64(max(c.At(k).Load.Requests, 0)+1)
	}
	leastFirst(scores)
}

// Chosen implements cycle.Observer.
func (s lmetricScorer) Chosen(c *cycle.Cycle, ep *endpoint.Endpoint) {
	if s.holds != nil {
		s.holds.Chosen(c, ep)
	}
}
