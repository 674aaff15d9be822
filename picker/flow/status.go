package flow

import (
	"cmp"
	"slices"
)

// Status describes a Core at one moment.
type Status struct {
	Model     string            `json:"model"` // set by who knows it
	Places    int64             `json:"places"`
	Endpoints int               `json:"endpoints"`
	Own       int64             `json:"own_in_flight"` // places of this replica
	InFlight  int64             `json:"in_flight"`     // of all, with those that nobody accounts for
	Replicas  int               `json:"replicas"`      // that are heard, this one included
	Silent    int               `json:"silent_replicas"`
	Lost      int64             `json:"unaccounted_places"` // that engines run and no replica that is heard knows of
	Evicting  int               `json:"evicting"`           // requests of this replica that were told to end and have not yet
	Waiting   int               `json:"waiting"`
	Backlog   *float64          `json:"backlog_s,omitempty"` // seconds that the pool needs for what waits at all replicas; nil: not known yet
	Bands     []BandStatus      `json:"bands"`
	Outcomes  map[string]uint64 `json:"outcomes"`
}

// BandStatus is one priority.
type BandStatus struct {
	Priority int      `json:"priority"`
	Waiting  int      `json:"waiting"` // requests here
	Bytes    int64    `json:"bytes"`
	Others   int64    `json:"waiting_elsewhere"` // requests at other replicas
	InFlight int64    `json:"own_in_flight"`     // places
	OldestS  float64  `json:"oldest_s"`
	Flows    []Tenant `json:"flows"` // those with most waiting
}

// Tenant is one tenant.
type Tenant struct {
	Flow     string  `json:"flow"`
	Waiting  int64   `json:"waiting"`   // requests, at all replicas
	InFlight float64 `json:"in_flight"` // places, at all replicas
	Share    float64 `json:"share"`     // places that it should hold
}

// Status describes the core as of now, with at most so many flows of each band.
func (c *Core) Status(now int64, flows int) Status {
	c.now = now
	s := Status{
		Places: c.capacity.Places, Endpoints: c.capacity.Endpoints, Own: c.own, InFlight: c.inFlight(), Waiting: c.waiting,
		Replicas: c.fleet.size(), Silent: c.fleet.silent(), Lost: int64(c.fleet.ghost + c.fleet.stray), Evicting: len(c.revoked), Outcomes: map[string]uint64{},
	}
	for out, n := range c.counts {
		if Outcome(out) != Queued {
			s.Outcomes[Outcome(out).String()] = n
		}
	}
	if seconds, known := c.backlog(); known {
		s.Backlog = &seconds
	}
	c.stale, c.urgent = true, true
	c.refresh()
	for _, b := range c.bands {
		bs := BandStatus{Priority: b.Priority, Waiting: b.waiting, Bytes: b.bytes, Others: b.others.requests, InFlight: b.own}
		if b.arrivals.first != none {
			bs.OldestS = float64(now-c.slab[b.arrivals.first].arrival) / 1e9
		}
		live := slices.Clone(b.live)
		slices.SortFunc(live, func(f, g *flow) int { return cmp.Or(cmp.Compare(g.queued(), f.queued()), cmp.Compare(f.id, g.id)) })
		for _, f := range live[:min(flows, len(live))] {
			bs.Flows = append(bs.Flows, Tenant{Flow: f.id, Waiting: f.queued(), InFlight: f.held(), Share: f.fair})
		}
		s.Bands = append(s.Bands, bs)
	}
	return s
}

// backlog returns how long the pool needs for what waits at all replicas, in seconds: the
// places that are waited for, at the pace of those held of late. False: no request has ended yet
// of whose time it could be told.
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

// Busy reports whether something waits or holds places here.
func (c *Core) Busy() bool { return c.waiting > 0 || c.own > 0 || c.fleet.ghost > 0 }
