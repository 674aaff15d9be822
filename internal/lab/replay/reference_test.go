package replay

import (
	"math"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// This file implements the published policies a second time, directly from their pseudocode, for
// comparison with the built-in policies.

type plain struct {
	choose func(p *plain, c *cycle.Cycle) int
	bound  map[sessions.Key]block.EndpointID
	turn   int
}

func (p *plain) Handle(c *cycle.Cycle, plan *cycle.Plan) error {
	k := p.choose(p, c)
	plan.Order = append(plan.Order, int32(k))
	p.bound[c.Session] = c.At(k).ID
	return nil
}

func reference(name string, choose func(p *plain, c *cycle.Cycle) int) Policy {
	return Policy{Name: name, Rules: func() (*picker.Rules, error) {
		return &picker.Rules{Handler: &plain{choose: choose, bound: map[sessions.Key]block.EndpointID{}}}, nil
	}}
}

func argmin(c *cycle.Cycle, cost func(k int) float64) int {
	best := 0
	for k := 1; k < c.Len(); k++ {
		if cost(k) < cost(best) {
			best = k
		}
	}
	return best
}

func lmetricCost(c *cycle.Cycle, k int) float64 {
	l := c.At(k).Load
	return float64((l.Prefill + int64(c.Work(k).New)) * l.Requests)
}

var refLMetric = reference("lmetric", func(_ *plain, c *cycle.Cycle) int {
	return argmin(c, func(k int) float64 { return lmetricCost(c, k) })
})

var refLoadOnly = reference("load_only", func(_ *plain, c *cycle.Cycle) int {
	return argmin(c, func(k int) float64 { return float64(c.At(k).Load.Requests) })
})

var refSticky = reference("sticky", func(p *plain, c *cycle.Cycle) int {
	if id, ok := p.bound[c.Session]; ok {
		return c.Position(id)
	}
	return argmin(c, func(k int) float64 { return float64(c.At(k).Load.Requests) })
})

var refUnified = reference("unified", func(p *plain, c *cycle.Cycle) int {
	mean := 0.0
	for k := range c.Len() {
		mean += float64(c.At(k).Load.Requests) / float64(c.Len())
	}
	if id, ok := p.bound[c.Session]; ok {
		k := c.Position(id)
		w := c.Work(k)
		if float64(c.Run(k).Total())/float64(w.Input) > 0.5 && float64(c.At(k).Load.Requests) <= 2*math.Max(mean, 1) {
			return k
		}
	}
	var ties []int
	for k := range c.Len() {
		if len(ties) > 0 {
			o := ties[0]
			a := [3]float64{lmetricCost(c, k), float64(c.Work(k).New), float64(c.At(k).Load.Requests)}
			b := [3]float64{lmetricCost(c, o), float64(c.Work(o).New), float64(c.At(o).Load.Requests)}
			if less3(b, a) {
				continue
			}
			if less3(a, b) {
				ties = ties[:0]
			}
		}
		ties = append(ties, k)
	}
	if len(ties) == 1 {
		return ties[0]
	}
	p.turn++
	return ties[(p.turn-1)%len(ties)]
})

func less3(a, b [3]float64) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}
