package flow

import (
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// Of requests in flight that are ended for others.
const (
	mostRevoked = 2                       // at a time: what comes free is looked at first
	revokeTime  = int64(10 * time.Second) // in which one must have ended
	helpAfter   = int64(60 * time.Millisecond)
)

// revocation is a request that was told to end and holds its places still.
type revocation struct {
	handle rules.Handle
	at     int64
	places int64
}

// makeRoom ends requests in flight for a band that waits for room: of the lowest
// priority first, of these the one that was let go last, since least is lost with it.
// Places that were taken back already, and have not come free, count as coming.
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

// helpOthers ends requests in flight for those of higher priority that wait at other
// replicas and have nobody there who could make way: of the replicas that hold requests of
// lower priority, the one that holds most does. What comes free is theirs: what waits here
// with less priority has no share of it.
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

// lower returns the places that requests of less than a priority hold here.
func (c *Core) lower(priority int) (places int64) {
	for _, b := range c.bands {
		if b.Priority < priority {
			places += b.own
		}
	}
	return places
}

// holding is what a replica has, by which replicas agree who of them makes way: places of
// lower priority, all places, and what waits in requests and bytes.
type holding [4]int64

// helpless returns the places that requests of a priority wait for at replicas that hold
// none of less, for as long as gauges of others take to be heard, and whether nobody has more
// than own.
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

// endBelow ends requests of less than a priority that hold so many places.
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

// shortOfRoom reports whether nobody of a band can go for want of free places, rather
// than because this replica has its part of them.
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

// endFlight forgets a request that ends among those that may be ended.
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

// expireRevocations gives up waiting for requests that were told to end and did not: others
// are ended in their place.
func (c *Core) expireRevocations() {
	c.revoked = slices.DeleteFunc(c.revoked, func(r revocation) bool {
		late := c.now-r.at >= revokeTime
		if late {
			c.counts[rules.EvictedLate]++
		}
		return late
	})
}
