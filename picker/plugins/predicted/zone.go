package predicted

import (
	"math"

	"github.com/grapevine-epp/grapevine/picker/cycle"
)

// A request leaves this replica's zone only if the gain exceeds the cost of crossing and the
// uncertainty of both predictions. Equal engines have different predicted costs at every moment: one
// decodes a few requests more, or has learned constants from other samples. Without a margin such
// differences decide, and almost as many requests cross as with a random choice.
//
// A conversation stays where its prefix is, so each crossing brings the later ones of the session.

// home is the state of the candidates in this replica's zone.
type home struct {
	cost float64 // lowest cost; 0: no candidate is in the zone
	busy float64 // lowest value of busy
}

// sureGain is the number of standard deviations by which a gain must exceed zero. For normally
// distributed errors, 93% of such gains are real.
const sureGain = 1.5

// priceZones adds the price of leaving the zone to the costs of the candidates.
func (s *scorer) priceZones(d *decision) {
	if !d.away {
		return
	}
	for k, x := range d.scores {
		if !d.Terms(k).InRemoteZone {
			d.home.add(-x, d.busys[k])
		}
	}
	for _, o := range d.open {
		if o.why&leaves != 0 {
			s.cross(d, int(o.k))
		}
	}
}

// add adds a candidate in the zone.
func (h *home) add(cost, busy float64) {
	if h.cost == 0 || cost < h.cost {
		h.cost = cost
	}
	if h.busy == 0 || busy < h.busy {
		h.busy = busy
	}
}

// cross adds the price of leaving the zone to the cost of candidate k.
func (s *scorer) cross(d *decision, k int) {
	price := s.crossing(d, d.At(k), -d.scores[k])
	if price == 0 {
		return
	}
	d.scores[k] -= price
	p := d.Predicted(d.Index(k))
	p.Zone = price
	d.Predict(k, p)
}

// crossing returns the price of leaving the zone for v, where the request costs that many seconds. It
// is 0 for candidates in the zone.
//
// The cost of uneven work is no prediction: it keeps caches equally old over minutes. An idle zone
// therefore has no advantage from it over the endpoint of this zone that has worked least.
func (s *scorer) crossing(d *decision, v *cycle.View, cost float64) float64 {
	if s.ZoneCost <= 0 || !v.InRemoteZone {
		return 0
	}
	if d.home.cost == 0 {
		return s.ZoneCost
	}
	uneven := s.BusyWeight * d.tracked * d.tracked * max(d.home.busy-s.busy(v), 0)
	return s.ZoneCost + sureGain*v.Cost.Noise*math.Hypot(d.home.cost, cost+uneven) + uneven
}
