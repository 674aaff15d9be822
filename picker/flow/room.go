package flow

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// Of shares.
const (
	shareEvery  = int64(5 * time.Millisecond) // shares are not computed more often,
	fewFlows    = 64                          // but where few flows get one that has none,
	manyFlows   = 1000                        // and less often where there are more
	catchUp     = 2.0                         // seconds in which a deficit is made good
	maxCatchUp  = 8.0                         // a share is raised or lowered at most by this factor
	deficitHalf = float64(time.Minute)
	debtShare   = .5  // seconds of its share that a flow can owe or be owed,
	leastDebt   = 5.0 // or so many place-seconds where that is less
	slack       = 1e-9
)

// inFlight returns the places in flight, everywhere.
func (c *Core) inFlight() int64 {
	return c.own + c.fleet.inFlight + int64(math.Ceil(c.fleet.ghost+c.fleet.stray-slack))
}

// lacksRoom reports whether so many places are not free. What engines run for others than
// this group leaves it one place: else nobody here would ever be served beside them.
func (c *Core) lacksRoom(places int64, ceiling float64) bool {
	held := c.inFlight()
	if c.own+c.fleet.inFlight == 0 && c.fleet.ghost == 0 {
		held = 0
	}
	return held > 0 && !c.entry.Fits(places) || held > 0 && float64(held+places) > float64(c.capacity.Permits)*ceiling+slack
}

// fits reports whether a request of f may go: there is room for it, and this replica
// has not yet taken its part of it.
func (c *Core) fits(b *band, f *flow, places int64, ceiling float64) bool {
	if c.capacity.Endpoints == 0 || c.capacity.Permits <= 0 || ceiling <= 0 || c.lacksRoom(places, ceiling) {
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

// grown returns to how many of all places a replica that has started may grow: an even part
// for as long as it learns, and then little by little to all of them. Where all start at once
// they would take at one moment what looks free to each.
func (c *Core) grown(all float64) float64 {
	even := all / float64(c.fleet.size())
	return even + (all-even)*min(max(float64(c.now-c.fleet.started-learning)/float64(learning), 0), 1)
}

// entitlement returns the places that this replica may hold for a band. asking is counted as
// waiting when nothing of it is.
func (c *Core) entitlement(b *band, asking *flow, places int64) float64 {
	sum := c.entitled(b)
	if asking.waiting == 0 {
		sum += asking.part(float64(places)) - asking.part(0)
	}
	return math.Floor(sum + .5)
}

// refresh computes all shares anew where something changed, not too often.
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
		for _, f := range flows { // what waits for them anywhere is not for lower bands
			left -= max(f.held(), f.fair)
		}
	}
}

// sharePace is how often shares are computed: it is work for each flow.
func (c *Core) sharePace() int64 {
	flows := 0
	for _, b := range c.bands {
		flows += len(b.live)
	}
	return shareEvery * int64(max(flows/manyFlows, 1))
}

// gather returns the flows of a band that hold or wait for something, by demand per
// weight.
func (c *Core) gather(b *band) []*flow {
	b.active = append(b.active[:0], b.live...)
	byDemand(b.active, natural)
	return b.active
}

func natural(f *flow) float64 { return f.weight }

// raised is the weight of a flow that makes its deficit good.
func raised(f *flow) float64 {
	return f.weight * min(max(1+f.deficit/(catchUp*max(f.fair, slack)), 1/maxCatchUp), maxCatchUp)
}

func byDemand(flows []*flow, weight func(*flow) float64) {
	slices.SortFunc(flows, func(f, g *flow) int {
		return cmp.Or(cmp.Compare(f.demand()/weight(f), g.demand()/weight(g)), cmp.Compare(f.id, g.id))
	})
}

// share divides places among the flows of a band, sorted by demand per weight. A flow
// that got less than its share for a while gets more, until that is made good.
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

// owe notes which of the flows that wait held more than their part of what they hold
// together, and which less. Debts are made good for seconds after their cause is over, out of
// what others should have then, so they stay small beside what a flow gets in ten seconds:
// places that were given back too late, after one flow had held all, are not paid for.
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

// waterfill divides places max-min fairly by weight: no flow gets more than its
// demand, and none could get more without one of a smaller share per weight getting
// less. flows are sorted by demand per weight.
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
