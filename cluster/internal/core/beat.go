package core

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// Every frame shows that its sender is alive, and most heartbeats repeat the previous one. So
// heartbeats are skipped while there is other traffic, and they become rarer as the group grows.
// This bounds their cost up to the size at which the longest period is reached.
const (
	// manyPeers is the number of peers above which heartbeats become rarer.
	manyPeers = 8
	// stretchMost bounds the stretch factor, in quarters. With it, a silent member is detected
	// within Options.Lease times the factor.
	stretchMost = 15
	// skipBeats is how many consecutive heartbeats may be skipped for other traffic.
	skipBeats = 1
	// aloneBeat is the period of a settled member without peers, which has nobody to send to.
	aloneBeat = 30 * time.Second
)

// stretch scales a heartbeat period or lease for a group of n peers.
func stretch(d time.Duration, n int) time.Duration {
	return d * time.Duration(min(max(4, n*4/manyPeers), stretchMost)) / 4
}

// period returns the time between this member's heartbeats. Members older than MinorChecks expect
// the period of a small group.
func (c *Core) period() time.Duration {
	for _, p := range c.peers {
		if p.Alive && p.Minor < group.MinorChecks {
			return c.g.Opt.Heartbeat
		}
	}
	return stretch(c.g.Opt.Heartbeat, len(c.peers))
}

// beat sends heartbeats, unless all peers were sent another frame since the last ones.
func (c *Core) beat() {
	// Peers expect the period announced last, even if the group has grown since.
	if due := min(c.g.LastSent+c.every, c.lastBeat+(1+skipBeats)*c.every); c.g.Now < due && c.lastBeat > 0 && !c.wants() {
		c.nextBeat = due
		return
	}
	c.every = c.period()
	for _, p := range c.peers {
		c.sendBeat(p)
	}
	c.lastBeat, c.nextBeat = c.g.Now, c.g.Now+c.every
	if len(c.peers) == 0 && c.g.Phase != group.Settling {
		c.nextBeat = c.g.Now + aloneBeat
	}
}

// meetFirst brings the next heartbeat forward to the usual period when the first peer joins.
func (c *Core) meetFirst() {
	if len(c.peers) != 1 || c.every == 0 || c.nextBeat <= c.g.Now {
		return
	}
	next := c.g.Now
	if rest := (c.g.Now - c.lastBeat) % c.every; rest > 0 {
		next += c.every - rest
	}
	c.nextBeat = min(c.nextBeat, next)
}

// wants reports whether a heartbeat has to request something.
func (c *Core) wants() bool {
	for _, p := range c.peers {
		for _, l := range c.logs.List {
			if p.Link && l.NeedsDigest(p.Peer) {
				return true
			}
		}
	}
	return false
}

// beatNow makes the next Tick send heartbeats: they carry news that peers wait for.
func (c *Core) beatNow() { c.lastBeat, c.nextBeat = 0, c.g.Now }

// leastLease returns how long a peer on a fast link may be silent.
func (c *Core) leastLease(p *peer) time.Duration {
	lease := c.g.Opt.Lease
	if p.every <= c.g.Opt.Heartbeat {
		return lease
	}
	most := stretch(lease, stretchMost*manyPeers)
	return min(most, time.Duration(float64(lease)*float64(p.every)/float64(c.g.Opt.Heartbeat)))
}
