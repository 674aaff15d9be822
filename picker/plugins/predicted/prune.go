package predicted

import (
	"math"

	"github.com/grapevine-epp/grapevine/picker/cycle"
)

// In a large pool most candidates cannot be chosen. The survey gives each candidate's cost except for
// the delay that its memory causes and the price of leaving the zone. Neither is negative, so this is
// a lower bound, and for candidates without these terms it is the cost. Other candidates are priced
// only if their bound is below the cost of the worst candidate that the picker would use. They are
// also priced if it is so close to the best cost that the two may count as equal.
//
// The picker's choice is the same as if all were priced. So are the predictions and scores of
// candidates that explanations show, with one exception: candidates beyond a limit follow all others
// in their order, but the distance may be smaller.

// priceBest is price for a picker that uses the best top candidates.
func (s *scorer) priceBest(d *decision, top int) {
	for range top {
		d.leaders = append(d.leaders, math.Inf(-1))
	}
	open := d.open
	for k := range d.scores {
		d.scores[k] = -s.cost(d, cycle.Prediction{Wait: d.firsts[k], Others: d.others[k] + d.uneven*d.busys[k]})
		if open.next(k) == 0 {
			s.lead(d, k)
		}
	}
	if d.away {
		s.findHome(d)
	}
	s.priceShown(d)
	for _, o := range d.open {
		k := int(o.k)
		if d.Index(k) < cycle.Listed {
			continue
		}
		x := d.scores[k]
		if o.why&leaves != 0 {
			x -= s.ZoneCost
		}
		if d.hopeless(x, s.Alike) {
			d.scores[k] = x
			continue
		}
		s.complete(d, k, o.why)
		s.lead(d, k)
	}
}

// priceShown prices the candidates that explanations show, whatever they cost.
func (s *scorer) priceShown(d *decision) {
	open := d.open
	for k := 0; k < len(d.scores) && d.Index(k) < cycle.Listed; k++ {
		why := open.next(k)
		if s.complete(d, k, why); why != 0 {
			s.lead(d, k)
		}
	}
	if len(d.Rankings()) < 2 {
		return
	}
	for k := range d.scores {
		if d.Named(d.Index(k)) {
			s.complete(d, k, fills|leaves)
		}
	}
}

// complete sets the price of candidate k, with all terms.
func (s *scorer) complete(d *decision, k int, why reason) {
	s.quote(d, k, why)
	if why&leaves != 0 {
		s.cross(d, k)
	}
}

// Complete implements cycle.Completer.
func (s scorer) Complete(c *cycle.Cycle, k int) {
	d, ok := c.State().(*decision)
	if !ok || !d.pruned {
		return
	}
	p := s.best(d, k)
	p.Zone = s.crossing(d, d.At(k), s.cost(d, p))
	d.Predict(k, p)
}

// findHome is the part of priceZones that considers the candidates of the zone.
func (s *scorer) findHome(d *decision) {
	open := d.open
	for k, x := range d.scores {
		why, cost := open.next(k), -x
		switch {
		case why&leaves != 0:
			continue
		case why == 0:
		case d.home.cost == 0 || cost < d.home.cost:
			s.quote(d, k, why)
			cost = -d.scores[k]
		default:
			cost = d.home.cost
		}
		d.home.add(cost, d.busys[k])
	}
}

// lead enters candidate k, which is priced, among the leaders.
func (s *scorer) lead(d *decision, k int) {
	x, at := d.scores[k], len(d.leaders)-1
	if !(x > d.leaders[at]) || s.beyond(d, k) > 0 {
		return
	}
	for ; at > 0 && x > d.leaders[at-1]; at-- {
		d.leaders[at] = d.leaders[at-1]
	}
	d.leaders[at] = x
}

// hopeless reports whether a candidate with a score of at most x is neither among the best nor equal
// to them (even).
func (d *decision) hopeless(x, alike float64) bool {
	best := d.leaders[0]
	return x < d.leaders[len(d.leaders)-1] && x <= best-max(-best*max(alike, d.uncertainty), d.step)
}
