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

// leaves reports whether a request at v leaves this replica's zone.
func (s *scorer) leaves(v *cycle.View) bool { return v.InRemoteZone && s.ZoneCost > 0 }

// priceZones adds the price of leaving the zone to the costs of the candidates.
func (s *scorer) priceZones(d *decision) {
	clear(d.crossings)
	d.home = home{}
	away := false
	for k := range d.scores {
		v := d.At(k)
		if s.leaves(v) {
			away = true
			continue
		}
		cost, busy := -d.scores[k], s.busy(v)
		if d.home.cost == 0 || cost < d.home.cost {
			d.home.cost = cost
		}
		if d.home.busy == 0 || busy < d.home.busy {
			d.home.busy = busy
		}
	}
	if !away {
		return
	}
	for k := range d.scores {
		price := s.crossing(d, d.At(k), -d.scores[k])
		if d.crossings[k] = price; price == 0 {
			continue
		}
		d.scores[k] -= price
		p := d.Predicted(d.Index(k))
		p.Zone = price
		d.Predict(k, p)
	}
}

// crossing returns the price of leaving the zone for v, where the request costs that many seconds. It
// is 0 for candidates in the zone.
//
// The cost of uneven work is no prediction: it keeps caches equally old over minutes. An idle zone
// therefore has no advantage from it over the endpoint of this zone that has worked least.
func (s *scorer) crossing(d *decision, v *cycle.View, cost float64) float64 {
	if !s.leaves(v) {
		return 0
	}
	if d.home.cost == 0 {
		return s.ZoneCost
	}
	uneven := s.BusyWeight * d.told * d.told * max(d.home.busy-s.busy(v), 0)
	return s.ZoneCost + sureGain*v.Cost.Noise*math.Hypot(d.home.cost, cost+uneven) + uneven
}
