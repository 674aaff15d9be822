package flow

import (
	"cmp"
	"slices"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// Reconfigure applies o to all waiting and in-flight requests. Handles stay valid. Requests keep
// their waiting time and, within the new order, their position. A request that has now waited too
// long expires with the next Advance. Requests over a lower limit are displaced, newest first.
// places recomputes a request's permits; it may be nil.
//
// No request is dispatched before the next SetCapacity or Advance, because the capacity's unit may
// have changed too.
func (c *Core) Reconfigure(now int64, o rules.Options, places func(tokens int64) int64) {
	c.tick(now)
	old := c.flows
	waiting, flying := c.everybody()
	c.begin(o)
	c.ends.items = c.ends.items[:0]
	c.waiting, c.bytes, c.own = 0, 0, 0
	for _, f := range old {
		c.remember(f)
	}
	for _, i := range flying {
		c.rejoin(i, places)
		c.fly(i)
	}
	for _, i := range waiting {
		c.rejoin(i, places)
		c.enqueue(i)
	}
	for k := range c.revoked {
		c.revoked[k].places = c.slab[c.slot(c.revoked[k].handle)].places
	}
	c.sum()
	c.shrink()
	c.stale, c.urgent = true, true
}

// everybody returns the waiting requests by arrival, and the in-flight ones by dispatch.
func (c *Core) everybody() (waiting, flying []int32) {
	waiting = slices.Clone(c.ends.items)
	for i := range c.slab {
		if c.slab[i].state == rules.Dispatched {
			flying = append(flying, int32(i))
		}
	}
	slices.SortFunc(waiting, func(a, b int32) int {
		x, y := &c.slab[a], &c.slab[b]
		return cmp.Or(cmp.Compare(x.arrival, y.arrival), cmp.Compare(x.seq, y.seq))
	})
	slices.SortFunc(flying, func(a, b int32) int {
		x, y := &c.slab[a], &c.slab[b]
		return cmp.Or(cmp.Compare(x.dispatched, y.dispatched), cmp.Compare(x.seq, y.seq))
	})
	return waiting, flying
}

// remember transfers a flow's service history, and its permits at silent replicas, to the new
// rules.
func (c *Core) remember(old *flow) {
	old.serve(c.now, 0, old.band.Service.HalfLife)
	if old.ghost == 0 && old.service == 0 && old.ratio == 0 && old.turns == 0 {
		return
	}
	f := c.flow(c.band(old.band.Priority), old.id)
	f.service, f.serveAt, f.servedAt = f.service+old.service, c.now, max(f.servedAt, old.servedAt)
	f.ratio = max(f.ratio, old.ratio)
	f.turns = max(f.turns, old.turns)
	if f.use(c.now); old.ghost > 0 {
		c.awake(f)
		f.ghost += old.ghost
	}
}

// rejoin assigns a request to its flow under the new rules.
func (c *Core) rejoin(i int32, places func(tokens int64) int64) {
	w := &c.slab[i]
	w.flow = c.flow(c.band(w.priority), w.id)
	w.prev, w.next = none, none
	if places != nil {
		w.places = max(places(w.tokens), 1)
	}
}

// shrink displaces this replica's part of the requests over the limits.
func (c *Core) shrink() {
	for _, b := range c.bands {
		requests := part(b.MaxRequests, int64(b.waiting), b.others.requests)
		bytes := part(b.MaxBytes, b.bytes, b.others.bytes)
		for b.waiting > 0 && (int64(b.waiting) > requests || b.bytes > bytes) {
			c.leave(b.arrivals.last, rules.Displaced)
		}
	}
	all := c.fleet.all
	requests, bytes := part(c.o.MaxRequests, int64(c.waiting), all.requests), part(c.o.MaxBytes, c.bytes, all.bytes)
	for c.waiting > 0 && (int64(c.waiting) > requests || c.bytes > bytes) {
		c.leave(c.lastBelow(never), rules.Displaced)
	}
}

// part returns this replica's part of a limit, by its own and the other replicas' waiting requests.
func part(limit, own, others int64) int64 {
	if limit <= 0 || own+others <= limit {
		return never
	}
	return int64(float64(limit) * float64(own) / float64(own+others))
}
