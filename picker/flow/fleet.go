package flow

import (
	"math"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// Of the other replicas.
const (
	silentAfter = int64(800 * time.Millisecond)
	learning    = int64(time.Second) // a replica that starts is careful until it heard all, at most this long
	witnessAge  = int64(2 * time.Second)
	strayShare  = .02 // of the capacity
)

// queued sums what waits.
type queued struct{ requests, bytes, places int64 }

func (q *queued) add(g rules.Gauge) {
	q.requests, q.bytes, q.places = q.requests+g.Requests, q.bytes+g.Bytes, q.places+g.Waiting
}

// fleet is what a Core knows of the other replicas.
type fleet struct {
	peers    map[string]*peer
	inFlight int64   // places of living others
	ghost    float64 // places of silent ones, whose requests run on in the engines
	stray    float64 // places that engines run and nobody accounts for
	seen     float64 // the same and those of silent members, at the last reading
	readings int
	all      queued // by others

	bound     float64 // places that we may hold while somebody is silent
	allowance allowance
	started   int64   // when the first peer was named; 0: alone
	service   float64 // mean seconds of a request, 0 when unknown
	witnessed int64   // when engines were read last
	fadedAt   int64   // when silent members' places faded last
}

// peer is one other replica.
type peer struct {
	gauges  []rules.Gauge
	heardAt int64
	silent  bool
	answers bool  // it has answered a Mark
	echo    int64 // the last one
	asked   int64 // since when an answer is due; 0: none

	waitsSince int64 // since when something has been waiting there
}

func (t *fleet) init() { t.peers, t.bound = map[string]*peer{}, math.Inf(1) }

// shared reports whether places are shared with others.
func (t *fleet) shared() bool { return len(t.peers) > 0 || t.ghost > 0 }

// ended learns how long requests take.
func (t *fleet) ended(took int64) {
	if t.service == 0 {
		t.service = float64(took) / 1e9
	}
	t.service += (float64(took)/1e9 - t.service) * .05
}

// size returns the number of living replicas, this one included.
func (t *fleet) size() int {
	n := 1
	for _, p := range t.peers {
		if !p.silent {
			n++
		}
	}
	return n
}

// settled reports whether every member has had the time to be heard.
func (t *fleet) settled(now int64) bool { return now-t.started > learning }

// next returns when Advance is due for the fleet's sake.
func (t *fleet) next(now int64) int64 {
	next := never
	for _, p := range t.peers {
		if !p.silent && len(p.gauges) > 0 {
			next = min(next, p.heardAt+silentAfter)
		}
	}
	if t.ghost > 0 {
		next = min(next, now+int64(250*time.Millisecond))
	}
	return next
}

// PeerLeft is told that a replica has left the group: what waits there is lost, what it
// held runs on in the engines.
func (c *Core) PeerLeft(now int64, origin string) {
	c.now = now
	p := c.fleet.peers[origin]
	if p == nil {
		return
	}
	c.fall(p)
	delete(c.fleet.peers, origin)
	c.sum()
	c.pump()
}

// join is called when the first other member is heard. What runs in the engines may
// belong to replicas that are gone: until engines were read this replica takes one
// place.
func (c *Core) join() {
	if c.fleet.started == 0 {
		c.fleet.started = c.now
		c.fleet.bound = float64(max(c.own, 1))
	}
}

// ReceiveShares takes what another replica tells: all its flows that hold or wait for
// something, also none. From then on it is a member until PeerLeft.
func (c *Core) ReceiveShares(now int64, origin string, gauges []rules.Gauge) {
	c.now = now
	p := c.fleet.peers[origin]
	if p == nil {
		c.join()
		p = &peer{}
		c.fleet.peers[origin] = p
	}
	if !slices.ContainsFunc(p.gauges, rules.Gauge.Waits) {
		p.waitsSince = now
	}
	back := p.silent
	p.gauges = append(p.gauges[:0], gauges...)
	p.heardAt, p.silent = now, false
	if back {
		c.returned(gauges)
	}
	c.sum()
	c.trim()
	c.pump()
	c.helpOthers()
}

// returned takes what a member holds that was silent, and accounts for itself again, off what
// nobody accounted for.
func (c *Core) returned(gauges []rules.Gauge) {
	t := &c.fleet
	held := 0.0
	for _, g := range gauges {
		held += float64(g.InFlight)
	}
	t.stray = max(t.stray-max(held-t.ghost, 0), min(t.stray, 0))
	if t.ghost > 0 {
		c.scaleGhost(max(t.ghost-held, 0))
	}
}

// ObserveRunning says how many places engines were seen to be running and queueing, by their
// own readings. What no living replica accounts for belongs to silent ones.
func (c *Core) ObserveRunning(now, running int64) {
	c.now, c.fleet.witnessed = now, now
	t := &c.fleet
	seen := max(float64(running-c.own-t.inFlight), 0)
	unexplained := seen
	if t.silent() == 0 && t.ghost == 0 && t.readings > 0 {
		// Gauges on their way explain a few places, of which no more is known than what was
		// there before.
		unexplained = min(seen, t.seen)
		few := float64(t.size()) + strayShare*float64(c.capacity.Permits)
		unexplained = max(unexplained-few, min(unexplained, t.stray))
	}
	t.seen = seen
	t.readings++
	if t.ghost > 0 && unexplained < .5 {
		c.scaleGhost(0)
	} else if t.ghost > 0 {
		c.scaleGhost(min(unexplained, t.ghost))
	}
	t.stray = unexplained - t.ghost
	c.anchor()
	c.pump()
}

// anchor bounds how far this replica may grow until engines are read again. Places
// that come free are handed over in equal parts, so that both sides of a cut do not
// take the same ones.
func (c *Core) anchor() {
	c.stale = true
	t := &c.fleet
	silent := t.silent()
	if t.ghost+t.stray <= 0 && silent == 0 && (c.now-t.started > learning || t.witnessed > t.started) {
		t.bound = math.Inf(1)
		return
	}
	free := float64(c.capacity.Permits-c.own-t.inFlight) - t.ghost - t.stray
	t.bound = float64(c.own) + max(free, 0)/float64(t.size()+max(silent, 1))
}

// silent counts the members that fell silent.
func (t *fleet) silent() int {
	n := 0
	for _, p := range t.peers {
		if p.silent {
			n++
		}
	}
	return n
}

// watch notices members that fell silent, and lets the places of such members fade
// where no engine tells whether they are still held.
func (c *Core) watch() {
	fell := false
	for _, p := range c.fleet.peers {
		// Those that hold nothing have nothing to tell.
		if !p.silent && len(p.gauges) > 0 && c.now-p.heardAt > silentAfter {
			c.fall(p)
			fell = true
		}
	}
	if fell {
		c.sum()
	}
	if c.now-max(c.fleet.witnessed, c.fleet.started) > witnessAge && c.fleet.ghost == 0 && !math.IsInf(c.fleet.bound, 1) {
		c.fleet.bound = math.Inf(1) // engines do not tell
	}
	if c.fleet.stray > 0 && c.now-c.fleet.witnessed > witnessAge {
		c.fleet.stray = 0
		c.anchor()
	}
	if c.fleet.ghost > 0 && c.now-c.fleet.witnessed > witnessAge {
		mean := max(c.fleet.service, .1)
		c.scaleGhost(c.fleet.ghost * math.Exp(-float64(c.now-c.fleet.fadedAt)/1e9/mean))
		c.anchor()
	}
	c.fleet.fadedAt = c.now
}

// fall turns what a member holds into places that nobody accounts for, and drops
// what waits there.
func (c *Core) fall(p *peer) {
	if p.silent {
		return
	}
	for _, g := range p.gauges {
		if g.InFlight > 0 {
			f := c.flow(c.band(g.Priority), g.Flow)
			c.awake(f)
			f.ghost += float64(g.InFlight)
			f.band.dirty, f.band.ranked = true, false
			c.fleet.ghost += float64(g.InFlight)
		}
	}
	c.fleet.bound = float64(c.own) // until engines were read
	p.silent, p.gauges = true, p.gauges[:0]
}

// scaleGhost makes the places of silent members so many, all flows in proportion.
func (c *Core) scaleGhost(to float64) {
	if to < .5 {
		to = 0
	}
	k := 0.0
	if c.fleet.ghost > 0 {
		k = to / c.fleet.ghost
	}
	for _, f := range c.flows {
		if f.ghost > 0 {
			f.ghost *= k
			f.band.dirty, f.band.ranked = true, false
			c.settle(f)
		}
	}
	c.fleet.ghost = to
}

// sum adds up what the living members tell.
func (c *Core) sum() {
	t := &c.fleet
	before := t.inFlight
	t.inFlight, t.all = 0, queued{}
	for _, b := range c.bands {
		b.others = queued{}
	}
	was := make([]*flow, 0, 16)
	for _, f := range c.flows {
		if f.others != (rules.Gauge{}) {
			f.others = rules.Gauge{}
			was = append(was, f)
		}
	}
	for _, p := range t.peers {
		for _, g := range p.gauges {
			f := c.flow(c.band(g.Priority), g.Flow)
			c.awake(f)
			f.others.InFlight += g.InFlight
			f.others.Waiting += g.Waiting
			f.others.Requests += g.Requests
			t.inFlight += g.InFlight
			t.all.add(g)
			f.band.others.add(g)
		}
	}
	for _, b := range c.bands {
		b.dirty, b.ranked = true, false
		for _, f := range b.live {
			c.touch(f)
		}
	}
	for _, f := range was {
		c.settle(f)
	}
	c.stale = true
	c.explain(float64(t.inFlight - before))
	c.allow()
}

// explain takes off what others have told of since engines were read for the first time:
// gauges that were on their way then.
func (c *Core) explain(places float64) {
	t := &c.fleet
	if t.stray <= 0 || places <= 0 || t.readings > 1 || t.ghost > 0 || t.silent() > 0 || c.now-t.witnessed > mostTravel/2 {
		return
	}
	if t.stray = max(t.stray-places, 0); t.stray == 0 {
		c.anchor()
	}
}

// Gauges appends what this replica tells the others.
func (c *Core) Gauges(dst []rules.Gauge) []rules.Gauge {
	for _, f := range c.flows {
		if f.own > 0 || f.waiting > 0 {
			dst = append(dst, rules.Gauge{
				Flow: f.id, Priority: f.band.Priority,
				Requests: int64(len(f.heap.items)), Waiting: f.waiting, InFlight: f.own, Bytes: f.bytes,
			})
		}
	}
	return dst
}
