package flow

import "time"

// allowance bounds how far a replica may grow until it hears of others again. What looks
// free to one looks free to all for as long as gauges take to travel. So each takes its
// part of it, and what it leaves to others stays theirs until they have told that they took
// it, or could have.
type allowance struct {
	most   float64            // places that we may hold
	extra  bool               // and one request beyond them
	claims [allowances]claims // of the window under way, and of those before
	turnAt int64
	own    int64 // places in flight when this was computed last
	others int64
	at     int64

	grownAt int64 // when we were last seen to hold more than before
}

// claims are parts of what was free: ours, and what was left to others.
type claims struct{ ours, theirs float64 }

const (
	allowances   = 4
	travelShare  = .10                          // of the mean service: within this time others have heard us and were heard
	leastTravel  = int64(30 * time.Millisecond) // and no less than that
	mostTravel   = int64(400 * time.Millisecond)
	likelyTravel = int64(60 * time.Millisecond) // where the mean is not known
	extraEvery   = int64(60 * time.Millisecond)
)

// travel returns for how long a place that was left to others stays theirs.
func (t *fleet) travel() int64 {
	if t.service == 0 {
		return likelyTravel
	}
	return min(max(int64(t.service*travelShare*1e9), leastTravel), mostTravel)
}

// heard returns until when all others were heard who hold or wait for something: of what
// they have done since nothing is known.
func (t *fleet) heard(now int64) int64 {
	for _, p := range t.peers {
		if !p.silent && len(p.gauges) > 0 {
			now = min(now, p.heardAt)
		}
	}
	return now
}

// turn begins new windows up to a time, and drops the claims of the oldest.
func (a *allowance) turn(until, travel int64) {
	window := travel / (allowances - 1)
	for n := 0; until-a.turnAt >= window; n++ {
		if n == allowances {
			a.turnAt = until
			break
		}
		copy(a.claims[1:], a.claims[:])
		a.claims[0] = claims{}
		a.turnAt += window
	}
}

// took takes off the claims that were made use of, the oldest first.
func (a *allowance) took(now, own, others int64) {
	if own > a.own {
		a.grownAt = now
	}
	ours, theirs := float64(own-a.own), float64(others-a.others)
	a.own, a.others = own, others
	for i := allowances - 1; i >= 0; i-- {
		c := &a.claims[i]
		n, m := min(c.ours, max(ours, 0)), min(c.theirs, max(theirs, 0))
		c.ours, ours = c.ours-n, ours-n
		c.theirs, theirs = c.theirs-m, theirs-m
	}
}

// claimed sums all claims.
func (a *allowance) claimed() (ours, theirs float64) {
	for _, c := range a.claims {
		ours, theirs = ours+c.ours, theirs+c.theirs
	}
	return ours, theirs
}

// grant divides free places that nobody has a claim to. Parts of what a request takes are of
// no use. So we may take one more where ours is such a part, and nothing was taken here for as
// long as it takes until others have heard of that and were heard: else all that have a part
// take a whole one, and those that have just had theirs one more.
func (a *allowance) grant(now, heard, travel int64, ours, theirs float64) {
	a.claims[0].ours += ours
	a.claims[0].theirs += theirs
	ours, _ = a.claimed()
	a.most = float64(a.own) + ours
	a.extra = ours < 1 && (a.grownAt == 0 || heard-a.grownAt >= max(extraEvery, travel))
	a.at = now
}

// fits reports whether a request of so many places may go.
func (a *allowance) fits(own, places int64) bool {
	if a.extra {
		places = 0
	}
	return float64(own+places) <= a.most+slack
}

// allow gives this replica its part of what is free: by what waits where, highest bands
// first. Of what nobody waits for, all have the same.
func (c *Core) allow() {
	t := &c.fleet
	a := &t.allowance
	heard := t.heard(c.now)
	a.turn(heard, t.travel())
	a.took(c.now, c.own, t.inFlight)
	ours, theirs := a.claimed()
	free := max(float64(c.capacity.Places)-float64(c.inFlight())-ours-theirs, 0)
	left := free
	ours = 0
	for _, b := range c.bands {
		own, others := float64(b.places), float64(b.others.places)
		if n := min(left, own+others); n > 0 {
			ours += n * own / (own + others)
			left -= n
		}
	}
	ours += left / float64(t.size())
	a.grant(c.now, heard, t.travel(), ours, free-ours)
}
