package flow

import (
	"cmp"
	"slices"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// Status returns the state of the core, with at most that many flows per band.
func (c *Core) Status(now int64, flows int) rules.Status {
	c.tick(now)
	s := rules.Status{
		Permits: c.capacity.Permits, Endpoints: c.capacity.Endpoints, Own: c.own, InFlight: c.inFlight(), Waiting: c.waiting,
		Replicas: c.fleet.size(), Silent: c.fleet.silent(), Lost: int64(c.fleet.ghost + c.fleet.stray), Evicting: len(c.revoked), Outcomes: map[string]uint64{},
	}
	for out, n := range c.counts {
		if rules.Outcome(out) != rules.Queued {
			s.Outcomes[rules.Outcome(out).String()] = n
		}
	}
	if seconds, known := c.backlog(); known {
		s.Backlog = &seconds
	}
	c.stale, c.urgent = true, true
	c.refresh()
	for _, b := range c.bands {
		bs := rules.BandStatus{Priority: b.Priority, Waiting: b.waiting, Bytes: b.bytes, Others: b.others.requests, InFlight: b.own}
		if b.arrivals.first != none {
			bs.OldestS = float64(now-c.slab[b.arrivals.first].arrival) / 1e9
		}
		live := slices.Clone(b.live)
		slices.SortFunc(live, func(f, g *flow) int { return cmp.Or(cmp.Compare(g.queued(), f.queued()), cmp.Compare(f.id, g.id)) })
		for _, f := range live[:min(flows, len(live))] {
			bs.Flows = append(bs.Flows, rules.Tenant{Flow: f.id, Waiting: f.queued(), InFlight: f.held(), Share: f.fair})
		}
		s.Bands = append(s.Bands, bs)
	}
	return s
}

// backlog returns how long the pool needs for the requests waiting at all replicas, in seconds, at
// the recent pace. known is false if no request has ended yet.
func (c *Core) backlog() (seconds float64, known bool) {
	places := int64(0)
	for _, b := range c.bands {
		places += b.places + b.others.places
	}
	if places == 0 {
		return 0, true
	}
	return c.seconds(float64(places)), c.fleet.service > 0
}

// Busy reports whether requests wait or hold permits here.
func (c *Core) Busy() bool { return c.waiting > 0 || c.own > 0 || c.fleet.ghost > 0 }
