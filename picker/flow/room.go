package flow

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// Constants for shares.
const (
	shareEvery  = int64(5 * time.Millisecond) // minimum interval of share computations,
	fewFlows    = 64                          // except with this few flows when one has no share yet,
	manyFlows   = 1000                        // and longer intervals with more flows than this
	catchUp     = 2.0                         // seconds in which a deficit is repaid
	maxCatchUp  = 8.0                         // a share is raised or lowered by at most this factor
	deficitHalf = float64(time.Minute)
	debtShare   = .5  // largest debt or credit of a flow, in seconds of its share,
	leastDebt   = 5.0 // or this many permit-seconds if that is more
	slack       = 1e-9
)

// inFlight returns the permits in flight at all replicas.
func (c *Core) inFlight() int64 {
	return c.own + c.fleet.inFlight + int64(math.Ceil(c.fleet.ghost+c.fleet.stray-slack))
}

// lacksRoom reports whether that many permits are not free. Load from outside of the group leaves
// it one permit; otherwise the group would never be served next to that load.
func (c *Core) lacksRoom(places int64, ceiling float64) bool {
	held := c.inFlight()
	if c.own+c.fleet.inFlight == 0 && c.fleet.ghost == 0 {
		held = 0
	}
	return held > 0 && !c.entry.Fits(places) || held > 0 && float64(held+places) > float64(c.capacity.Permits)*ceiling+slack
}

// fits reports whether a request of f may go: permits are free, and this replica has not used up
// its part.
func (c *Core) fits(b *band, f *flow, places int64, ceiling float64) bool {
	if c.capacity.Endpoints == 0 || c.capacity.Permits <= 0 || ceiling <= 0 || c.lacksRoom(places, ceiling) {
		return false
	}
	if c.now < c.fleet.pausedTo {
		return false
	}
	if !c.fleet.shared() {
		return true
	}
	if float64(c.own+places) > c.fleet.bound+slack || (c.own > 0 && !c.fleet.allowance.fits(c.own, places)) {
		return false
	}
	if float64(c.own+places) > max(c.grown(float64(c.capacity.Permits)*ceiling), 1)+slack {
		return false
	}
	if c.fleet.all.requests == 0 && c.fleet.settled(c.now) {
		return true
	}
	c.refresh()
	return float64(b.own+places) <= max(c.entitlement(b, f, places), 1)+slack
}

// grown returns the fraction of all permits that a new replica may use: an even part while it
// learns, then gradually the whole. If all replicas start at once, each would otherwise take the
// permits that look free to all.
func (c *Core) grown(all float64) float64 {
	even := all / float64(c.fleet.size())
	return even + (all-even)*min(max(float64(c.now-c.fleet.started-learning)/float64(learning), 0), 1)
}

// entitlement returns the permits that this replica may hold for a band. The request asking counts
// as waiting if its flow has none.
func (c *Core) entitlement(b *band, asking *flow, places int64) float64 {
	sum := c.entitled(b)
	if asking.waiting == 0 {
		sum += asking.part(float64(places)) - asking.part(0)
	}
	return math.Floor(sum + .5)
}

// refresh recomputes all shares if an input changed, but not too often.
func (c *Core) refresh() {
	if !c.stale || (c.now-c.sharedAt < c.sharePace() && !c.urgent && c.sharedAt > 0) {
		return
	}
	dt := float64(c.now-c.sharedAt) / 1e9
	if c.sharedAt == 0 || dt < 0 {
		dt = 0
	}
	c.sharedAt, c.stale, c.urgent = c.now, false, false
	left := float64(c.capacity.Permits)
	for _, b := range c.bands {
		flows := c.gather(b)
		b.dirty, b.ranked = true, false
		c.share(b, flows, max(left*b.ceiling, 0), min(dt, 1))
		for _, f := range flows { // demand of these flows anywhere has precedence over lower bands
			left -= max(f.held(), f.fair)
		}
	}
}

// sharePace is the interval of share computations, whose cost grows with the number of flows.
func (c *Core) sharePace() int64 {
	flows := 0
	for _, b := range c.bands {
		flows += len(b.live)
	}
	return shareEvery * int64(max(flows/manyFlows, 1))
}

// gather returns the flows of a band with held or waiting permits, by demand per weight.
func (c *Core) gather(b *band) []*flow {
	b.active = append(b.active[:0], b.live...)
	byDemand(b.active, natural)
	return b.active
}

func natural(f *flow) float64 { return f.weight }

// raised is the weight of a flow adjusted to repay its deficit.
func raised(f *flow) float64 {
	return f.weight * min(max(1+f.deficit/(catchUp*max(f.fair, slack)), 1/maxCatchUp), maxCatchUp)
}

func byDemand(flows []*flow, weight func(*flow) float64) {
	slices.SortFunc(flows, func(f, g *flow) int {
		return cmp.Or(cmp.Compare(f.demand()/weight(f), g.demand()/weight(g)), cmp.Compare(f.id, g.id))
	})
}

// share divides permits among the flows of a band, sorted by demand per weight. A flow that was
// below its share for a while gets more until that is repaid.
func (c *Core) share(b *band, flows []*flow, places, dt float64) {
	waterfill(flows, places, natural, func(f *flow, v float64) { f.fair = v })
	owe(flows, dt)
	if b.Fairness == rules.Strict || len(flows) < 2 {
		for _, f := range flows {
			f.target = f.fair
		}
		return
	}
	byDemand(flows, raised)
	waterfill(flows, places, raised, func(f *flow, v float64) { f.target = v })
}

// owe updates the deficits: which waiting flows held more than their part of their joint permits,
// and which less. Deficits are repaid for seconds after their cause is over, at other flows' cost,
// so they stay small compared with a flow's permits over ten seconds. If a flow held all permits
// and returns them late, this is not compensated.
func owe(flows []*flow, dt float64) {
	fair, held := 0.0, 0.0
	for _, f := range flows {
		if f.waitsAnywhere() {
			fair, held = fair+f.fair, held+f.held()
		}
	}
	for _, f := range flows {
		if f.waitsAnywhere() && fair > 0 {
			f.deficit += (f.fair*held/fair - f.held()) * dt
		}
		f.deficit *= math.Exp2(-dt * 1e9 / deficitHalf)
		most := max(debtShare*f.fair, leastDebt)
		f.deficit = min(max(f.deficit, -most), most)
	}
}

// waterfill divides permits max-min fairly by weight. No flow gets more than its demand, and none
// could get more without reducing a flow with a smaller share per weight. flows are sorted by
// demand per weight.
func waterfill(flows []*flow, places float64, weight func(*flow) float64, set func(*flow, float64)) {
	sum := 0.0
	for _, f := range flows {
		sum += weight(f)
	}
	for _, f := range flows {
		w := weight(f)
		v := min(f.demand(), places*w/sum)
		set(f, v)
		places, sum = places-v, sum-w
	}
}
