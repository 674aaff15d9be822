package flow

import (
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// Limits of eviction.
const (
	mostRevoked = 2                       // at a time, so that freed permits are seen before more requests are evicted
	revokeTime  = int64(10 * time.Second) // time within which an evicted request must end
	helpAfter   = int64(60 * time.Millisecond)
)

// revocation is an evicted request that still holds its permits.
type revocation struct {
	handle rules.Handle
	at     int64
	places int64
}

// makeRoom evicts in-flight requests for a band that waits for permits: the lowest priority first,
// and within it the one dispatched last, because it loses the least work. Permits that are already
// revoked but not free yet count as available.
func (c *Core) makeRoom(b *band) {
	if !c.o.Evict || len(c.revoked) >= mostRevoked || b.ceiling <= 0 || !c.shortOfRoom(b) {
		return
	}
	wanted := b.places
	for _, r := range c.revoked {
		wanted -= r.places
	}
	c.endBelow(min(b.Priority, 0), wanted)
}

// helpOthers evicts in-flight requests for requests of higher priority that wait at replicas
// without evictable requests. Among the replicas with requests of lower priority, the one that
// holds most evicts. The freed permits go to the waiting requests: local requests of lower priority
// have no share in them.
func (c *Core) helpOthers() {
	if !c.o.Evict || len(c.revoked) >= mostRevoked || c.fleet.all.requests == 0 {
		return
	}
	for _, b := range c.bands {
		below := min(b.Priority, 0)
		own := holding{c.lower(below), c.own, int64(c.waiting), c.bytes}
		wanted, most := c.fleet.helpless(c.now, b.Priority, below, own)
		for _, r := range c.revoked {
			wanted -= r.places
		}
		if own[0] > 0 && wanted > 0 && most && c.lacksRoom(1, b.ceiling) {
			c.endBelow(below, wanted)
		}
	}
}

// lower returns the permits held here by requests below a priority.
func (c *Core) lower(priority int) (places int64) {
	for _, b := range c.bands {
		if b.Priority < priority {
			places += b.own
		}
	}
	return places
}

// holding is the key by which replicas agree which one evicts: permits of lower priority, all
// permits, and waiting requests and bytes.
type holding [4]int64

// helpless returns the permits that requests of a priority wait for at replicas without requests of
// lower priority. Requests count once they have waited for the gauges' travel time. most reports
// whether no replica has more than own.
func (t *fleet) helpless(now int64, priority, below int, own holding) (wanted int64, most bool) {
	most = true
	for _, p := range t.peers {
		waits, has := int64(0), holding{}
		for _, g := range p.gauges {
			if g.Priority == priority {
				waits += g.Waiting
			} else if g.Priority < below {
				has[0] += g.InFlight
			}
			has = holding{has[0], has[1] + g.InFlight, has[2] + g.Requests, has[3] + g.Bytes}
		}
		if has[0] == 0 && waits > 0 && now-p.waitsSince >= helpAfter {
			wanted += waits
		}
		most = most && slices.Compare(has[:], own[:]) <= 0
	}
	return wanted, most
}

// endBelow evicts requests below a priority with that many permits in total.
func (c *Core) endBelow(priority int, wanted int64) {
	for at := len(c.bands) - 1; at >= 0 && c.bands[at].Priority < priority; at-- {
		for i := c.bands[at].flight.last; i != none; i = c.slab[i].prev {
			if wanted <= 0 || len(c.revoked) >= mostRevoked {
				return
			}
			w := &c.slab[i]
			if w.revoked {
				continue
			}
			w.revoked = true
			wanted -= w.places
			h := c.handle(i)
			c.revoked = append(c.revoked, revocation{h, c.now, w.places})
			c.out = append(c.out, rules.Event{Handle: h, Outcome: rules.Evicted})
			c.counts[rules.Evicted]++
		}
	}
}

// shortOfRoom reports whether the band is blocked by missing permits, rather than by this replica
// having used its part.
func (c *Core) shortOfRoom(b *band) bool {
	if c.capacity.Permits <= 0 {
		return false
	}
	if c.lacksRoom(1, b.ceiling) {
		return true
	}
	for _, f := range b.busy {
		if !c.lacksRoom(c.slab[f.heap.items[0]].places, b.ceiling) {
			return false
		}
	}
	return true
}

// endFlight removes a request that ends from the evictable ones.
func (c *Core) endFlight(i int32) {
	w := &c.slab[i]
	if w.endable {
		w.flow.band.flight.remove(c.slab, i)
	}
	if w.revoked {
		h := c.handle(i)
		c.revoked = slices.DeleteFunc(c.revoked, func(r revocation) bool { return r.handle == h })
	}
}

// expireRevocations stops waiting for evicted requests that did not end, so that others are evicted
// instead.
func (c *Core) expireRevocations() {
	c.revoked = slices.DeleteFunc(c.revoked, func(r revocation) bool {
		late := c.now-r.at >= revokeTime
		if late {
			c.counts[rules.EvictedLate]++
		}
		return late
	})
}
