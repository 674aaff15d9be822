package core

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// Heartbeats are for silence: whatever a member sends shows that it lives, and most of it
// says what was sent before. So they keep away while there is other traffic, and come less often the
// more members there are, so that what a member sends for them does not grow beyond some size
// until they are as rare as may be.
const (
	// manyPeers is from how many peers on heartbeats come less often.
	manyPeers = 8
	// stretchMost bounds how much less often, in quarters: with it a silent member is noticed
	// within Options.Lease times this.
	stretchMost = 15
	// skipBeats is how many times in a row a heartbeat is left out for other traffic.
	skipBeats = 1
)

// stretch makes a time between heartbeats, or until one is missed, what it is among n peers.
func stretch(d time.Duration, n int) time.Duration {
	return d * time.Duration(min(max(4, n*4/manyPeers), stretchMost)) / 4
}

// period returns the time between this member's heartbeats. Members of versions before
// MinorChecks expect those of a small group.
func (c *Core) period() time.Duration {
	for _, p := range c.peers {
		if p.Alive && p.Minor < group.MinorChecks {
			return c.g.Opt.Heartbeat
		}
	}
	return stretch(c.g.Opt.Heartbeat, len(c.peers))
}

// beat sends heartbeats, unless everybody was sent something else since the last ones.
func (c *Core) beat() {
	// Peers expect what the last ones said, whatever came to the group since.
	if due := min(c.g.Spoke+c.every, c.lastBeat+(1+skipBeats)*c.every); c.g.Now < due && c.lastBeat > 0 && !c.wants() {
		c.nextBeat = due
		return
	}
	c.every = c.period()
	for _, p := range c.peers {
		c.sendBeat(p)
	}
	c.lastBeat, c.nextBeat = c.g.Now, c.g.Now+c.every
}

// wants reports whether a heartbeat asks for something.
func (c *Core) wants() bool {
	for _, p := range c.peers {
		for _, l := range c.logs.List {
			if p.Link && l.WantsDigest(p.Peer) {
				return true
			}
		}
	}
	return false
}

// beatNow has heartbeats sent at once: they say something that peers wait for.
func (c *Core) beatNow() { c.lastBeat, c.nextBeat = 0, c.g.Now }

// lease returns for how long a peer may be silent.
func (c *Core) lease(p *peer) time.Duration {
	lease := c.g.Opt.Lease
	if p.every <= c.g.Opt.Heartbeat {
		return lease
	}
	most := stretch(lease, stretchMost*manyPeers)
	return min(most, time.Duration(float64(lease)*float64(p.every)/float64(c.g.Opt.Heartbeat)))
}
