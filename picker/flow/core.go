package flow

import (
	"math"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/internal/room"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// never is after any time.
const never = int64(math.MaxInt64)

// Core is the queue of one pool at one replica. Times are nanoseconds of any monotonic clock.
type Core struct {
	o rules.Options

	slab    []waiter
	free    int32 // first free slot, linked by next
	seq     uint64
	ends    heap
	waiting int   // waiting requests
	bytes   int64 // of waiting requests
	own     int64 // permits in flight

	bands []*band // by descending priority
	flows map[flowKey]*flow
	idle  flowList

	idleFlow int64 // flows idle for longer are removed

	served uint64
	ratio  float64 // of service to the sizes' prediction, 0 until known

	capacity rules.Capacity
	entry    room.Entry
	changed  int64 // when the pool became empty or stopped being empty
	now      int64
	sharedAt int64 // time of the last share computation
	stale    bool  // an input of shares has changed since
	urgent   bool  // a flow has no share yet

	fleet   fleet
	revoked []revocation
	out     []rules.Event

	frontier   []int32 // scratch for search
	priorities []int   // scratch for usage limits
	ceilings   []float64
	counts     [rules.NumOutcomes]uint64
}

type flowKey struct {
	id       string
	priority int
}

// New returns a Core without capacity: all requests wait until SetCapacity.
func New(o rules.Options) *Core {
	c := &Core{free: none, ends: heap{by: byEnd}}
	c.fleet.init()
	c.begin(o)
	return c
}

// begin sets the rules of a core without waiting requests.
func (c *Core) begin(o rules.Options) {
	if o.Limit == nil {
		o.Limit = rules.StaticLimit{}
	}
	o.TTL, o.EmptyTTL = min(o.TTL, longestTTL), min(o.EmptyTTL, longestTTL)
	c.o, c.bands, c.flows, c.idle = o, nil, map[flowKey]*flow{}, flowList{}
	c.idleFlow = int64(idleFlow)
	for _, b := range append([]rules.Band{o.Default, o.Negative}, o.Bands...) {
		if b.Fairness == rules.MostTurns {
			c.idleFlow = max(c.idleFlow, int64(min(b.Service.Keep, longestTTL)))
		}
	}
	for _, b := range o.Bands {
		c.addBand(b)
	}
	c.band(0)
}

// Offer requests permits. With Dispatched the request may go; with Queued an Event has the outcome
// later. Any other outcome is a refusal with a zero handle.
func (c *Core) Offer(now int64, a rules.Request) (rules.Handle, rules.Outcome) {
	c.tick(now)
	a.Permits = max(a.Permits, 1)
	b := c.band(a.Priority)
	f := c.flow(b, a.Flow)
	if !c.aheadOf(b) && c.fits(b, f, a.Permits, c.ceiling(b)) {
		i := c.take(f, a)
		if f.at < 0 {
			f.lift()
		}
		c.dispatch(i)
		return c.handle(i), rules.Dispatched
	}
	if out := c.admit(b, f, a); out != rules.Queued {
		c.counts[out]++
		c.settle(f)
		return 0, out
	}
	i := c.take(f, a)
	c.enqueue(i)
	h := c.handle(i)
	c.pump()
	if w := &c.slab[i]; w.gen == genOf(h) && w.state == rules.Dispatched {
		c.out = slices.DeleteFunc(c.out, func(e rules.Event) bool { return e.Handle == h })
		return h, rules.Dispatched
	}
	return h, rules.Queued
}

// Cancel removes a waiting request whose client has left. It returns false if the request is not
// waiting. If it was dispatched, Release is still required.
func (c *Core) Cancel(now int64, h rules.Handle) bool { return c.quit(now, h, rules.Cancelled) }

// CancelRemote is Cancel for a request that moves to another cluster.
func (c *Core) CancelRemote(now int64, h rules.Handle) bool { return c.quit(now, h, rules.Departed) }

// Withdraw is Cancel for a request that its proxy moves to another replica.
func (c *Core) Withdraw(now int64, h rules.Handle) bool { return c.quit(now, h, rules.Closed) }

func (c *Core) quit(now int64, h rules.Handle, out rules.Outcome) bool {
	c.tick(now)
	i := c.slot(h)
	if i == none || c.slab[i].state != rules.Queued {
		return false
	}
	c.leave(i, out)
	return true
}

// Release returns the permits of a dispatched request. service is its engine time in seconds,
// negative if unknown. It returns false for unknown handles.
func (c *Core) Release(now int64, h rules.Handle, service float64) bool {
	c.tick(now)
	i := c.slot(h)
	if i == none || c.slab[i].state != rules.Dispatched {
		return false
	}
	c.endFlight(i)
	w := &c.slab[i]
	f := w.flow
	c.own -= w.places
	f.own -= w.places
	f.band.own -= w.places
	if service >= 0 {
		f.serve(now, service-w.work, f.band.Service.HalfLife)
		c.learn(f, w.sizes, service)
	}
	c.touch(f)
	c.fleet.ended(now - w.dispatched)
	c.freeSlot(i)
	c.stale = true
	c.settle(f)
	c.pump()
	return true
}

// SetCapacity sets the pool's capacity.
func (c *Core) SetCapacity(now int64, p rules.Capacity) {
	c.tick(now)
	empty, was := p.Endpoints == 0, c.capacity.Endpoints == 0
	more := c.entry.Set(now, p.Staged, p.Entry, max(c.fleet.size(), 1))
	if p == c.capacity && !more {
		return
	}
	c.capacity, c.stale = p, true
	c.allow()
	if empty != was {
		c.changed = now
		for _, i := range c.ends.items {
			c.slab[i].key[byEnd] = c.end(&c.slab[i])
		}
		c.ends.fix(c.slab)
	}
	c.pump()
}

// Advance expires requests that have waited too long. It returns when to call it again; never means
// not before another call changes the state.
func (c *Core) Advance(now int64) int64 {
	c.tick(now)
	for len(c.ends.items) > 0 {
		i := c.ends.items[0]
		if c.slab[i].key[byEnd] > now {
			break
		}
		c.leave(i, c.whenEmpty(rules.Expired, rules.ExpiredEmpty))
	}
	c.expireFlows()
	c.expireRevocations()
	c.watch()
	if now-c.fleet.allowance.at >= c.fleet.travel() {
		c.allow() // also if no replica holds anything and so sends no gauges
	}
	c.pump()
	c.helpOthers()
	next := c.fleet.next(now)
	if len(c.ends.items) > 0 {
		next = min(next, c.slab[c.ends.items[0]].key[byEnd])
	}
	return next
}

// Close ends all waiting requests: the picker is shutting down.
func (c *Core) Close(now int64) {
	c.tick(now)
	for len(c.ends.items) > 0 {
		c.leave(c.ends.items[0], rules.Closed)
	}
}

// Events appends the events since the last call to dst.
func (c *Core) Events(dst []rules.Event) []rules.Event {
	dst = append(dst, c.out...)
	c.out = c.out[:0]
	return dst
}

// whenEmpty returns full if there are endpoints, and empty otherwise.
func (c *Core) whenEmpty(full, empty rules.Outcome) rules.Outcome {
	if c.capacity.Endpoints == 0 {
		return empty
	}
	return full
}

// end returns the deadline of w. It counts from the arrival, or from when the pool last became
// empty or stopped being empty.
func (c *Core) end(w *waiter) int64 {
	ttl, other := int64(c.o.TTL), int64(c.o.EmptyTTL)
	if band := w.flow.band.TTL; band != 0 {
		ttl = int64(max(band, 0))
	}
	if c.capacity.Endpoints == 0 {
		ttl, other = other, ttl
	}
	end := never
	if ttl > 0 {
		end = max(w.arrival, c.changed) + ttl
		if other > 0 {
			end = min(end, w.arrival+max(ttl, other)+int64(2*time.Second))
		}
	}
	if w.ttl > 0 {
		end = min(end, w.arrival+w.ttl)
	}
	return end
}

// admit decides whether the request may be queued. At the limit of its band, a request of the
// longest flow is displaced; at the total limit, one of a lower band.
func (c *Core) admit(b *band, f *flow, a rules.Request) rules.Outcome {
	full := c.whenEmpty(rules.RefusedFull, rules.RefusedEmpty)
	for c.bandFull(b, 1, a.Bytes) {
		if over := c.makeWay(b, f); over == refuse {
			return full
		} else if over == accept {
			break
		}
	}
	all := c.fleet.all
	for exceeds(int64(c.waiting)+all.requests, 1, c.o.MaxRequests) || exceeds(c.bytes+all.bytes, a.Bytes, c.o.MaxBytes) {
		last := c.lastBelow(int64(b.Priority))
		if last != none {
			c.leave(last, rules.Displaced)
			continue
		}
		if over := c.makeWay(b, f); over == refuse {
			return full
		} else if over == accept {
			break
		}
	}
	return rules.Queued
}

// bandFull reports whether the addition would exceed the band's limits.
func (c *Core) bandFull(b *band, requests, bytes int64) bool {
	return exceeds(int64(b.waiting)+b.others.requests, requests, b.MaxRequests) || exceeds(b.bytes+b.others.bytes, bytes, b.MaxBytes)
}

func exceeds(have, more, limit int64) bool { return limit > 0 && have+more > limit }

// lastBelow returns the newest request of the lowest band below the priority, or none.
func (c *Core) lastBelow(priority int64) int32 {
	for i := len(c.bands) - 1; i >= 0 && int64(c.bands[i].Priority) < priority; i-- {
		if c.bands[i].arrivals.last != none {
			return c.bands[i].arrivals.last
		}
	}
	return none
}

// aheadOf reports whether a waiting request takes precedence over a new one in b.
func (c *Core) aheadOf(b *band) bool {
	for _, higher := range c.bands {
		if higher.waiting > 0 {
			return true
		}
		if higher == b {
			return false
		}
	}
	return false
}

// take fills a slot.
func (c *Core) take(f *flow, a rules.Request) int32 {
	i := c.free
	if i == none {
		i = int32(len(c.slab))
		c.slab = append(c.slab, waiter{gen: 1})
	} else {
		c.free = c.slab[i].next
	}
	w := &c.slab[i]
	c.seq++
	*w = waiter{
		gen: w.gen, seq: c.seq, flow: f, id: a.Flow, priority: a.Priority, arrival: c.now - int64(min(max(a.Waited, 0), longestTTL)), offered: c.now, ttl: int64(min(a.TTL, longestTTL)), target: int64(a.Target),
		bytes: max(a.Bytes, 0), places: a.Permits, tokens: a.Tokens, sizes: a.Work, work: c.predictedWork(f, a.Work), prev: none, next: none,
		endable: a.Endable && f.band.Priority < 0,
	}
	return i
}

func (c *Core) freeSlot(i int32) {
	w := &c.slab[i]
	*w = waiter{gen: w.gen + 1, next: c.free, state: rules.Closed}
	c.free = i
}

func (c *Core) handle(i int32) rules.Handle { return rules.Handle(c.slab[i].gen)<<32 | rules.Handle(i) }

// genOf returns the generation of the slot in a handle.
func genOf(h rules.Handle) uint32 { return uint32(h >> 32) }

// slot returns the slot of h, or none if its request has ended.
func (c *Core) slot(h rules.Handle) int32 {
	i := uint32(h)
	if h == 0 || int(i) >= len(c.slab) || c.slab[i].gen != genOf(h) {
		return none
	}
	return int32(i)
}

func (c *Core) enqueue(i int32) {
	w := &c.slab[i]
	f, b := w.flow, w.flow.band
	w.state = rules.Queued
	w.key[byEnd] = c.end(w)
	w.key[byOrder] = orderKey(b.Ordering, w)
	f.heap.push(c.slab, i)
	c.ends.push(c.slab, i)
	f.waiting += w.places
	f.bytes += w.bytes
	b.join(c.slab, i)
	c.waiting++
	c.bytes += w.bytes
	if len(f.heap.items) == 1 {
		c.busy(f)
	}
	c.touch(f)
	c.stale = true
}

// orderKey is the sort key of w in its flow.
func orderKey(o rules.Ordering, w *waiter) int64 {
	switch o {
	case rules.Deadline:
		return w.key[byEnd]
	case rules.LatencyTarget:
		if w.target <= 0 || w.target > never-w.arrival {
			return never
		}
		return w.arrival + w.target
	case rules.ShortestFirst:
		return w.arrival + int64(rules.Ageing*min(w.work, 1e6)*1e9)
	default:
		return w.arrival
	}
}

// unlink removes a waiting request from all lists.
func (c *Core) unlink(i int32) {
	w := &c.slab[i]
	f := w.flow
	f.heap.remove(c.slab, i)
	c.ends.remove(c.slab, i)
	f.band.part(c.slab, i)
	f.waiting -= w.places
	f.bytes -= w.bytes
	c.waiting--
	c.bytes -= w.bytes
	if len(f.heap.items) == 0 {
		f.band.unbusy(c.slab, f)
	}
	c.touch(f)
	c.stale = true
}

// leave ends a waiting request without permits.
func (c *Core) leave(i int32, out rules.Outcome) {
	f := c.slab[i].flow
	c.unlink(i)
	c.out = append(c.out, rules.Event{Handle: c.handle(i), Outcome: out})
	c.counts[out]++
	c.freeSlot(i)
	c.settle(f)
}

// dispatch gives permits to a request.
func (c *Core) dispatch(i int32) {
	w := &c.slab[i]
	f := w.flow
	w.state, w.dispatched = rules.Dispatched, c.now
	c.fly(i)
	c.entry.Take(c.now, w.places)
	w.work = c.predictedWork(f, w.sizes) // includes ratios learned while it waited
	f.band.virtual = max(f.band.virtual, f.tag)
	f.serve(c.now, w.work, f.band.Service.HalfLife)
	c.served++
	f.servedAt = c.served
	f.turns++
	c.touch(f)
	c.counts[rules.Dispatched]++
}

// fly counts a request as in flight.
func (c *Core) fly(i int32) {
	w := &c.slab[i]
	f := w.flow
	c.awake(f)
	if w.endable = w.endable && f.band.Priority < 0; w.endable {
		f.band.flight.append(c.slab, i)
	}
	c.own += w.places
	f.own += w.places
	f.band.own += w.places
	f.use(c.now)
	c.touch(f)
	c.stale = true
}

// pump dispatches waiting requests while permits are free, highest band first. A band that waits
// for permits blocks the lower ones.
func (c *Core) pump() {
	if c.waiting == 0 || c.capacity.Endpoints == 0 {
		return
	}
	for _, b := range c.bands {
		for b.waiting > 0 {
			f := c.choose(b, c.ceiling(b))
			if f == nil {
				c.makeRoom(b)
				return
			}
			i := f.heap.items[0]
			c.unlink(i)
			c.dispatch(i)
			c.out = append(c.out, rules.Event{Handle: c.handle(i), Outcome: rules.Dispatched})
		}
	}
}

// heldBack is how long smaller requests of other flows may overtake a flow's head before permits
// are reserved for the head.
const heldBack = int64(time.Second)

// halved is how long a request waits before it may be dispatched with only half of the pool
// reserved. More permits than that are free at one moment only if all replicas pause, so it would
// starve.
const halved = int64(5 * time.Second)

// wanted returns the number of permits that must be free for a request.
func (c *Core) wanted(w *waiter) int64 {
	if c.now-w.offered <= halved {
		return w.places
	}
	return min(w.places, max(c.capacity.Permits/int64(max(c.capacity.Endpoints, 2)), 1))
}

// choose returns the flow whose head is dispatched next, or nil if none may.
func (c *Core) choose(b *band, ceiling float64) *flow {
	c.refresh()
	if b.many() {
		return c.search(b, ceiling)
	}
	b.ranked = false
	return c.scan(b, ceiling)
}

// scan iterates over all waiting flows.
func (c *Core) scan(b *band, ceiling float64) *flow {
	b.normalize(c.slab, c.now)
	var best, held *flow // held: the first flow with reserved permits
	for _, f := range b.busy {
		w := &c.slab[f.heap.items[0]]
		f.score = b.scoreOf(f, w)
		if best != nil && !goesBefore(f, best) {
			continue
		}
		places := c.wanted(w)
		if c.fits(b, f, places, ceiling) {
			best = f
		} else if c.now-w.offered > heldBack && (held == nil || goesBefore(f, held)) && c.lacksRoom(places, ceiling) {
			held = f
		}
	}
	if best != nil && held != nil && goesBefore(held, best) {
		return nil
	}
	return best
}

// ceiling returns the fraction of the capacity that b may use.
func (c *Core) ceiling(b *band) float64 {
	if _, static := c.o.Limit.(rules.StaticLimit); static {
		return 1
	}
	at := 0
	c.priorities = c.priorities[:0]
	for _, other := range c.bands {
		if other == b {
			at = len(c.priorities)
		}
		if other == b || other.used(c.now) {
			c.priorities = append(c.priorities, other.Priority)
		}
	}
	c.ceilings = slices.Grow(c.ceilings[:0], len(c.priorities))[:len(c.priorities)]
	saturation := 1.0
	if c.capacity.Permits > 0 {
		saturation = float64(c.inFlight()) / float64(c.capacity.Permits)
	}
	c.o.Limit.Ceilings(saturation, c.priorities, c.ceilings)
	b.ceiling = c.ceilings[at]
	return b.ceiling
}
