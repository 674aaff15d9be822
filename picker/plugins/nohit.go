package plugins

import (
	"slices"
	"sync"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

type noHitParams struct {
	LRUSize          int    `json:"lruSize"`
	PrefixPluginType string `json:"prefixPluginType,omitempty"`
	PrefixPluginName string `json:"prefixPluginName,omitempty"`
	PrefixMatchInfo  string `json:"prefixMatchInfoProducerName,omitempty"`
}

const defaultNoHit = 1024

// noHitScorer distributes cold requests, whose prompts no endpoint holds. Endpoints score higher
// the longer ago they received a cold request. All score 0.5 if the request is not cold.
type noHitScorer struct {
	size  int
	holds *plugin.Holdings

	mu    sync.Mutex
	order []block.EndpointID // least recent cold request first
	place []int              // scratch of Score: position in order by id, -1: none
}

func newNoHit(p noHitParams) (plugin.Plugin, error) {
	if p.LRUSize <= 0 {
		p.LRUSize = defaultNoHit
	}
	bind := func(h *plugin.Holdings) plugin.Plugin {
		return plugin.Plugin{Scorer: &noHitScorer{size: p.LRUSize, holds: h}}
	}
	out := bind(nil)
	out.Bind = bind
	return out, nil
}

// cold reports whether no candidate holds any part of the prompt.
func (s *noHitScorer) cold(c *cycle.Cycle) bool {
	if s.holds != nil {
		return slices.Max(holdings(c, s.holds, c.Scratch(c.Len()))) == 0
	}
	for k := range c.Len() {
		if c.Run(k).Blocks > 0 || c.Run(k).Total() > 0 {
			return false
		}
	}
	return true
}

// Score implements cycle.Scorer.
func (s *noHitScorer) Score(c *cycle.Cycle, scores []float64) {
	n := len(scores)
	if !s.cold(c) {
		for k := range scores {
			scores[k] = .5
		}
		return
	}
	if n == 1 {
		scores[0] = 1
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rank(c.Pool.IDs())
	never := 0
	for k := range scores {
		if s.place[c.At(k).ID] < 0 {
			scores[k] = 1 - float64(never)/float64(n-1)
			never++
		}
	}
	for k := range scores {
		if at := s.place[c.At(k).ID]; at >= 0 {
			scores[k] = max(1-float64(never+at)/float64(n-1), 0)
		}
	}
}

// rank fills place for ids below n.
func (s *noHitScorer) rank(n int) {
	s.place = slices.Grow(s.place[:0], n)[:n]
	for i := range s.place {
		s.place[i] = -1
	}
	for at, id := range s.order {
		if int(id) < n {
			s.place[id] = at
		}
	}
}

// Chosen implements cycle.Observer.
func (s *noHitScorer) Chosen(c *cycle.Cycle, ep *endpoint.Endpoint) {
	if s.holds != nil {
		defer s.holds.Chosen(c, ep)
	}
	if !s.cold(c) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.order, ep.ID); at >= 0 {
		s.order = slices.Delete(s.order, at, at+1)
	}
	if len(s.order) == s.size {
		s.order = slices.Delete(s.order, 0, 1)
	}
	s.order = append(s.order, ep.ID)
}
