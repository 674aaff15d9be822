package flow

import "github.com/grapevine-epp/grapevine/picker/flow/rules"

// Expected returns how long a request that has just been queued will probably wait, in seconds. It
// assumes that all permits requested ahead of it are released at the recent pace. These are all
// permits of higher bands and, in its own band, its flow's permits times the number of sharing
// flows, up to the whole band. known is false if no request has ended yet, or if h is not waiting.
// Later arrivals of higher priority are not predicted.
func (c *Core) Expected(h rules.Handle) (seconds float64, known bool) {
	i := c.slot(h)
	if i == none || c.slab[i].state != rules.Queued {
		return 0, false
	}
	own := c.slab[i].flow
	ahead := 0.0
	for _, b := range c.bands {
		all := float64(b.places + b.others.places)
		if b == own.band {
			ahead += min(all, float64(own.waiting+own.others.Waiting)*b.weights/own.weight)
			break
		}
		ahead += all
	}
	return c.seconds(ahead), c.fleet.service > 0
}

// seconds returns how long the pool needs to release that many permits: their mean holding time
// over the number of permits. A pool without endpoints counts as one permit.
func (c *Core) seconds(places float64) float64 {
	return places * c.fleet.service / float64(max(c.capacity.Permits, 1))
}
