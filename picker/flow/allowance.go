package flow

import (
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/internal/room"
)

// allowance limits how much a replica may grow between updates from its peers. Gauges take time to
// travel, so every replica sees the same free permits. Each replica therefore takes only its part.
// The rest is reserved for the peers until they have reported that they took it, or until they are
// known to have newer information.
//
// A replica that runs short requests an acknowledgment (Mark). The peers' acknowledgments (Echo)
// contain the latest of its gauges that they had received when they sent theirs. For peers that do
// not acknowledge, a travel time is assumed.
type allowance struct {
	most  float64 // permits that this replica may hold
	extra bool    // plus one request
	left  room.Left
	own   int64 // permits in flight at the last computation
	other int64
	at    int64

	grownAt int64 // when this replica was last seen to hold more than before
}

const (
	travelShare  = .10                          // of the mean service time: by then gauges have traveled both ways
	leastTravel  = int64(30 * time.Millisecond) // lower bound
	mostTravel   = int64(400 * time.Millisecond)
	likelyTravel = int64(60 * time.Millisecond) // if the mean is unknown
	extraEvery   = int64(60 * time.Millisecond)
	eagerShare   = .05 // of the capacity, summed over replicas: taken for demand that has not reached peers yet
)

// travel returns how long permits stay reserved for peers that do not acknowledge.
func (t *fleet) travel() int64 {
	if t.service == 0 {
		return likelyTravel
	}
	return min(max(int64(t.service*travelShare*1e9), leastTravel), mostTravel)
}

// known returns the latest time whose gauges of ours all peers are known to have received. For
// peers that do not acknowledge it is an estimate.
func (t *fleet) known(now int64) (at int64) {
	at = now
	for _, p := range t.peers {
		if p.silent {
			continue
		}
		switch guess := p.lastReport(now); {
		case !p.answers:
			at = min(at, guess-t.travel())
		case p.asked > 0 && now-p.asked > silentAfter: // it has stopped acknowledging
			at = min(at, max(p.echo, guess-silentAfter))
		default:
			at = min(at, p.echo)
		}
	}
	return at
}

// lastReport returns when a peer was last heard. A peer without gauges sends nothing.
func (p *peer) lastReport(now int64) int64 {
	if len(p.gauges) == 0 {
		return now
	}
	return p.reportedAt
}

// took releases reservations that peers have used, oldest first.
func (a *allowance) took(now, own, others int64) {
	if own > a.own {
		a.grownAt = now
	}
	n := max(float64(others-a.other), 0)
	a.own, a.other = own, others
	a.left.Used(n)
}

// turn starts a new period if the current one has lasted for after.
func (c *Core) turn(after int64) {
	if c.fleet.allowance.left.Turn(c.now, after) {
		for _, b := range c.bands {
			copy(b.asked[1:], b.asked[:])
			b.asked[0] = b.places
		}
	}
}

// fits reports whether a request of that many permits may be dispatched.
func (a *allowance) fits(own, places int64) bool {
	if a.extra {
		places = 0
	}
	return float64(own+places) <= a.most+slack
}

// allow computes this replica's part of the free permits: proportional to the demand that all
// replicas know of, plus a little for local demand in any case. Fractions of a request are useless.
// So a replica whose part is less than a request may take one more, if it has taken nothing since
// all peers knew its last increase. Otherwise every replica with a fraction would take a whole one,
// repeatedly.
func (c *Core) allow() {
	t := &c.fleet
	a := &t.allowance
	known := t.known(c.now)
	a.left.DropBefore(known)
	c.turn(t.travel() / (room.Stretches - 1))
	a.took(c.now, c.own, t.inFlight)
	free := max(float64(c.capacity.Permits)-float64(c.inFlight()), 0)
	theirs, eager := a.left.Sum()
	hoped := c.part(free, false)
	ours := hoped
	if t.answered() {
		ours = min(c.part(free, true), hoped)
	}
	ours = max(min(ours, free-theirs), 0)
	heard := a.grownAt == 0 || known >= a.grownAt
	budget := eagerShare * float64(c.capacity.Permits) / float64(t.size())
	if heard {
		budget = max(budget, 1)
	}
	more := max(min(budget-eager, hoped-ours, free-theirs-ours), 0)
	ours += more
	a.left.Add(max(free-ours-theirs, 0), more)
	a.most = float64(a.own) + ours
	a.extra = ours < 1 && heard && (a.grownAt == 0 || c.now-a.grownAt >= extraEvery)
	a.at = c.now
}

// part returns this replica's part of the free permits. They are divided by demand, highest bands
// first; permits without demand are divided equally. If known is set, only demand that has lasted
// since the last known gauges counts.
func (c *Core) part(free float64, known bool) (ours float64) {
	ages := c.fleet.allowance.left.Len()
	for _, b := range c.bands {
		waits := b.places
		if b.asked[0] = min(b.asked[0], waits); known {
			for _, n := range b.asked[:ages] {
				waits = min(waits, n)
			}
		}
		own, others := float64(waits), float64(b.others.places)
		if n := min(free, own+others); n > 0 {
			ours += n * own / (own + others)
			free -= n
		}
	}
	return ours + free/float64(c.fleet.size())
}

// Mark returns a number that identifies the gauges that Gauges just returned, for peers to
// acknowledge. 0 means that no acknowledgment is needed: this replica is not short, its peers have
// its last growth if more than half of the pool is in use, and it has determined which peers
// acknowledge.
func (c *Core) Mark(now int64) int64 {
	c.tick(now)
	t := &c.fleet
	free := float64(c.capacity.Permits - c.inFlight())
	short := c.waiting > 0 || t.allowance.most-float64(c.own) < free/float64(2*t.size())
	grown := 2*free < float64(c.capacity.Permits) && t.allowance.grownAt > t.known(now)
	if len(t.peers) == 0 || !short && !grown && (t.settled(now) || t.answered()) {
		return 0
	}
	for _, p := range t.peers {
		if p.asked == 0 {
			p.asked = now
		}
	}
	c.turn(0)
	return now
}

// answered reports whether all peers have acknowledged.
func (t *fleet) answered() bool {
	for _, p := range t.peers {
		if !p.silent && !p.answers {
			return false
		}
	}
	return true
}

// Echo handles a peer's acknowledgment: the peer had received the gauges identified by mark when it
// sent its latest gauges.
func (c *Core) Echo(now int64, origin string, mark int64) {
	c.tick(now)
	p := c.fleet.peers[origin]
	if p == nil || mark > now || p.answers && mark <= p.echo {
		return
	}
	p.answers, p.echo, p.asked = true, mark, 0
	c.allow()
	c.pump()
}
