package flow

import (
	"math"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// Constants for other replicas.
const (
	silentAfter = int64(800 * time.Millisecond)
	learning    = int64(time.Second) // a new replica is careful until all peers have sent gauges, for at most this long
	witnessAge  = int64(2 * time.Second)
	strayShare  = .02                           // of the capacity
	arriving    = int64(100 * time.Millisecond) // from a request's dispatch until its engine counts it
)

// queued sums waiting requests.
type queued struct{ requests, bytes, places int64 }

func (q *queued) add(g rules.Gauge) {
	q.requests, q.bytes, q.places = q.requests+g.Requests, q.bytes+g.Bytes, q.places+g.Waiting
}

// fleet is a Core's view of the other replicas.
type fleet struct {
	peers    map[string]*peer
	inFlight int64   // permits of other live replicas
	ghost    float64 // permits of silent replicas, whose requests still run in the engines
	stray    float64 // permits that engines run and no replica accounts for
	seen     float64 // stray plus ghost permits at the last reading
	readings int
	all      queued // at other replicas

	bound     float64 // permits that this replica may hold while a peer is silent
	allowance allowance
	started   int64   // time of the first peer's first message; 0: none
	service   float64 // mean seconds of a request; 0: unknown
	witnessed int64   // when engines were last read
	fadedAt   int64   // when silent members' permits last decayed
	fellAt    int64   // when a member last became silent or left
	reducedAt int64   // when they appeared, or were last reduced by a reading
	pausedTo  int64   // end of the hold after this replica itself was stopped
}

// peer is one other replica.
type peer struct {
	gauges     []rules.Gauge
	reportedAt int64
	silent     bool
	answers    bool  // it acknowledges marks
	echo       int64 // last acknowledged mark
	asked      int64 // since when an acknowledgment is due; 0: none

	waitsSince int64 // since when requests have been waiting there
}

func (t *fleet) init() { t.peers, t.bound = map[string]*peer{}, math.Inf(1) }

// shared reports whether permits are shared with other replicas.
func (t *fleet) shared() bool { return len(t.peers) > 0 || t.ghost > 0 }

// ended updates the mean service time.
func (t *fleet) ended(took int64) {
	if t.service == 0 {
		t.service = float64(took) / 1e9
	}
	t.service += (float64(took)/1e9 - t.service) * .05
}

// size returns the number of live replicas, including this one.
func (t *fleet) size() int {
	n := 1
	for _, p := range t.peers {
		if !p.silent {
			n++
		}
	}
	return n
}

// settled reports whether every member has had time to send its gauges.
func (t *fleet) settled(now int64) bool { return now-t.started > learning }

// next returns when Advance is due because of the fleet.
func (t *fleet) next(now int64) int64 {
	next := never
	for _, p := range t.peers {
		if !p.silent && len(p.gauges) > 0 {
			next = min(next, p.reportedAt+silentAfter)
		}
	}
	if now < t.pausedTo {
		next = min(next, t.pausedTo)
	}
	if t.ghost > 0 {
		next = min(next, now+int64(250*time.Millisecond))
	}
	return next
}

// PeerLeft handles a replica that left the group. Its waiting requests are lost; its dispatched
// requests still run in the engines.
func (c *Core) PeerLeft(now int64, origin string) {
	c.tick(now)
	p := c.fleet.peers[origin]
	if p == nil {
		return
	}
	c.fall(p)
	delete(c.fleet.peers, origin)
	c.sum()
	c.pump()
}

// tick sets the time. A replica with requests is called much more often than every silentAfter. If
// it was not, its process was stopped: its peers counted it as silent and took its permits as its
// requests ended, and its gauges of them are old. It then dispatches nothing until it has theirs.
func (c *Core) tick(now int64) {
	if c.now > 0 && now-c.now > silentAfter && c.own+int64(c.waiting) > 0 && len(c.fleet.peers) > 0 {
		c.fleet.pausedTo = now + learning
	}
	c.now = now
}

// join handles the first other member. Engines may be running requests of departed replicas, so
// this replica takes one permit until engines were read.
func (c *Core) join() {
	if c.fleet.started == 0 {
		c.fleet.started = c.now
		c.fleet.bound = float64(max(c.own, 1))
	}
}

// ReceiveShares handles another replica's gauges: all its flows that hold or wait for permits,
// possibly none. From then on it is a member until PeerLeft.
func (c *Core) ReceiveShares(now int64, origin string, gauges []rules.Gauge) {
	c.tick(now)
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
	p.reportedAt, p.silent = now, false
	if back {
		c.returned(gauges)
	}
	c.sum()
	c.trim()
	c.pump()
	c.helpOthers()
}

// returned reduces the unaccounted permits when a silent member sends gauges again, since it now
// accounts for its own.
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

// ObserveRunning sets how many requests the engines run and queue, according to their gauges, the
// oldest of which was read at since. Permits that no live replica accounts for belong to silent
// ones.
//
// After silent members' permits were reduced, live replicas take them. An older reading does not
// contain the requests that took them, and would reduce the same permits twice.
func (c *Core) ObserveRunning(now, since, running int64) {
	c.tick(now)
	c.fleet.witnessed = now
	t := &c.fleet
	if t.ghost > 0 && since < t.reducedAt+arriving {
		if since >= t.fellAt+arriving { // the bound of fall holds until then
			c.anchor()
			c.pump()
		}
		return
	}
	seen := max(float64(running-c.own-t.inFlight), 0)
	unexplained := seen
	if t.silent() == 0 && t.ghost == 0 && t.readings > 0 {
		// Gauges in transit explain a few permits. Beyond these, only permits that were already
		// unexplained count.
		unexplained = min(seen, t.seen)
		few := float64(t.size()) + strayShare*float64(c.capacity.Permits)
		unexplained = max(unexplained-few, min(unexplained, t.stray))
	}
	t.seen = seen
	t.readings++
	if t.ghost > 0 && unexplained < t.ghost {
		c.scaleGhost(unexplained)
		t.reducedAt = now
	}
	t.stray = unexplained - t.ghost
	c.anchor()
	c.pump()
}

// anchor limits this replica's growth until engines are read again. Free permits are divided
// equally, so that both sides of a partition do not take the same ones.
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

// silent returns the number of silent members.
func (t *fleet) silent() int {
	n := 0
	for _, p := range t.peers {
		if p.silent {
			n++
		}
	}
	return n
}

// watch detects members that became silent. Their permits decay if no engine shows whether they are
// still held.
func (c *Core) watch() {
	fell := false
	for _, p := range c.fleet.peers {
		// A peer that holds nothing sends nothing.
		if !p.silent && len(p.gauges) > 0 && c.now-p.reportedAt > silentAfter {
			c.fall(p)
			fell = true
		}
	}
	if fell {
		c.sum()
	}
	if c.now-max(c.fleet.witnessed, c.fleet.started) > witnessAge && c.fleet.ghost == 0 && !math.IsInf(c.fleet.bound, 1) {
		c.fleet.bound = math.Inf(1) // engine gauges are unavailable
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

// fall converts a member's held permits to unaccounted ones and drops its waiting requests.
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
	c.fleet.bound, c.fleet.fellAt, c.fleet.reducedAt = float64(c.own), c.now, c.now // until engines were read
	p.silent, p.gauges = true, p.gauges[:0]
}

// scaleGhost scales silent members' permits to a total, proportionally over flows.
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

// sum adds up the live members' gauges.
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

// explain reduces the unaccounted permits by gauges that were in transit when engines were read for
// the first time.
func (c *Core) explain(places float64) {
	t := &c.fleet
	if t.stray <= 0 || places <= 0 || t.readings > 1 || t.ghost > 0 || t.silent() > 0 || c.now-t.witnessed > mostTravel/2 {
		return
	}
	if t.stray = max(t.stray-places, 0); t.stray == 0 {
		c.anchor()
	}
}

// Gauges appends this replica's gauges to dst.
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
