package flow

import "github.com/grapevine-epp/grapevine/picker/flow/rules"

// Expected returns how long a request that has just joined the queue is likely to wait, in
// seconds: until the places that are waited for before it have been handed on, at the pace
// of those held of late. Those are all of higher bands and, of its own, what its flow waits
// for, times the flows that share, where that is less than all. False: no request has ended
// yet of whose time it could be told, or h does not wait. What comes later with a higher
// priority is not foreseen.
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

// seconds returns how long the pool needs to hand on so many places: what one is held in
// the mean, over the places that there are. A pool without endpoints counts as one place.
func (c *Core) seconds(places float64) float64 {
	return places * c.fleet.service / float64(max(c.capacity.Permits, 1))
}
