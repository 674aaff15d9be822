package flow

import (
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/internal/room"
)

// allowance bounds how far a replica may grow until it hears of others again. What looks
// free to one looks free to all for as long as gauges take to travel. So each takes its
// part of it, and what it leaves to others stays theirs until they have told that they took
// it, or know better: a replica that runs short asks the others to answer (Mark), and their
// answers (Echo) say which of its gauges they had heard when they told theirs. From others that
// do not answer it is believed after the time in which they should have heard and been heard.
type allowance struct {
	most  float64 // places that we may hold
	extra bool    // and one request beyond them
	left  room.Left
	own   int64 // places in flight when this was computed last
	other int64
	at    int64

	grownAt int64 // when we were last seen to hold more than before
}

const (
	travelShare  = .10                          // of the mean service: within this time others have heard us and were heard
	leastTravel  = int64(30 * time.Millisecond) // and no less than that
	mostTravel   = int64(400 * time.Millisecond)
	likelyTravel = int64(60 * time.Millisecond) // where the mean is not known
	extraEvery   = int64(60 * time.Millisecond)
	eagerShare   = .05 // of the capacity, of all replicas together: taken for demand that others do not know
)

// travel returns for how long a place that was left to others stays theirs, if they do not answer.
func (t *fleet) travel() int64 {
	if t.service == 0 {
		return likelyTravel
	}
	return min(max(int64(t.service*travelShare*1e9), leastTravel), mostTravel)
}

// known returns the time whose gauges of ours all others had heard when they told what is known
// of them. Of those that do not say so it is guessed.
func (t *fleet) known(now int64) (at int64) {
	at = now
	for _, p := range t.peers {
		if p.silent {
			continue
		}
		switch guess := p.heard(now); {
		case !p.answers:
			at = min(at, guess-t.travel())
		case p.asked > 0 && now-p.asked > silentAfter: // it has stopped to answer
			at = min(at, max(p.echo, guess-silentAfter))
		default:
			at = min(at, p.echo)
		}
	}
	return at
}

// heard returns when a peer was heard last. Who holds nothing has nothing to tell.
func (p *peer) heard(now int64) int64 {
	if len(p.gauges) == 0 {
		return now
	}
	return p.heardAt
}

// took takes off what others have made use of, the oldest first.
func (a *allowance) took(now, own, others int64) {
	if own > a.own {
		a.grownAt = now
	}
	n := max(float64(others-a.other), 0)
	a.own, a.other = own, others
	a.left.Used(n)
}

// turn begins a new stretch of time where the one under way has lasted for so long.
func (c *Core) turn(after int64) {
	if c.fleet.allowance.left.Turn(c.now, after) {
		for _, b := range c.bands {
			copy(b.asked[1:], b.asked[:])
			b.asked[0] = b.places
		}
	}
}

// fits reports whether a request of so many places may go.
func (a *allowance) fits(own, places int64) bool {
	if a.extra {
		places = 0
	}
	return float64(own+places) <= a.most+slack
}

// allow gives this replica its part of what is free: by what waits where, as far as all know of
// it, and a little by what waits here in any case. Parts of what a request takes are of no use.
// So we may take one more where ours is such a part, and nothing was taken here since all heard
// of what was: else all that have a part take a whole one, and those that have just had theirs
// one more.
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

// part divides what is free by what waits where, highest bands first: which part of it is ours.
// Of what nobody waits for, all have the same. Where it is to be what others know of, only what
// has been waiting here all the time since what they know counts.
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

// Mark returns a number for what Gauges returned just before: others answer with it. 0: no answer
// is wanted, since this replica may take what it needs, all know what it took where the pool is more
// than half full, and it has learned of all whether they answer.
func (c *Core) Mark(now int64) int64 {
	c.now = now
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

// answered reports whether all others have answered.
func (t *fleet) answered() bool {
	for _, p := range t.peers {
		if !p.silent && !p.answers {
			return false
		}
	}
	return true
}

// Echo takes another replica's answer: it had heard what Mark returned at that time when it told
// the gauges that were heard of it last.
func (c *Core) Echo(now int64, origin string, mark int64) {
	c.now = now
	p := c.fleet.peers[origin]
	if p == nil || mark > now || p.answers && mark <= p.echo {
		return
	}
	p.answers, p.echo, p.asked = true, mark, 0
	c.allow()
	c.pump()
}
