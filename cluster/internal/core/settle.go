package core

import (
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// Phase returns how far this member has settled.
func (c *Core) Phase() group.Phase { return c.g.Phase }

// Uptime returns the time since this member started.
func (c *Core) Uptime() time.Duration { return c.g.Now - c.startAt }

// Leaving reports whether Leave was called.
func (c *Core) Leaving() bool { return c.g.Leaving }

// settle updates the phase. Settled is final; Degraded becomes Settled when a peer appears.
func (c *Core) settle() {
	if c.g.Phase == group.Settled {
		return
	}
	was := c.g.Phase
	defer func() {
		if c.g.Phase != was {
			c.beatNow() // peers wait for it
		}
	}()
	age := c.Uptime()
	switch {
	case c.g.Opt.Standalone && c.named(), c.caughtUp() && c.gaugesComplete():
		c.g.Phase = group.Settled
		for _, l := range c.logs.List {
			l.Settled()
		}
	case !slices.ContainsFunc(c.peers, func(p *peer) bool { return !c.foreign(p) }) && age >= c.g.Opt.LonelyTimeout, age >= c.g.Opt.SettleTimeout:
		c.g.Phase = group.Degraded
	}
}

// named reports whether the application has listed the sources of every log.
func (c *Core) named() bool {
	for _, l := range c.logs.List {
		if !l.Named() {
			return false
		}
	}
	return true
}

// caughtUp reports whether this member has reached the state of one settled peer or, in a new
// group, of every peer.
func (c *Core) caughtUp() bool {
	met, starts := false, true
	for _, p := range c.peers {
		if c.foreign(p) {
			continue // it cannot be asked
		}
		met = true
		if p.Phase != group.Settling {
			if c.caughtUpWith(p) {
				return true
			}
			starts = false
		}
	}
	if !met || !starts { // more may follow from peers that are still settling
		return false
	}
	if p := c.byID[c.laggard]; p != nil && !c.foreign(p) && !c.caughtUpWith(p) {
		return false // the same peer as at the last check is still ahead
	}
	for _, p := range c.peers {
		if !c.foreign(p) && !c.caughtUpWith(p) {
			c.laggard = p.ID
			return false
		}
	}
	return true
}

// gaugesComplete reports whether this member has the gauges of every peer. An unreachable peer delays this
// by at most one lease.
func (c *Core) gaugesComplete() bool {
	if c.caughtUpAt == 0 {
		c.caughtUpAt = c.g.Now
	}
	return c.g.Now-c.caughtUpAt >= c.g.Opt.Lease || !slices.ContainsFunc(c.peers, func(p *peer) bool {
		return !c.foreign(p) && (!p.Up || p.lastSentAt == 0 || !p.gaugesComplete())
	})
}

func (p *peer) gaugesComplete() bool {
	for i := range p.gauges {
		if t := &p.gauges[i]; t.want > 0 && !t.complete {
			return false
		}
	}
	return true
}

func (c *Core) caughtUpWith(p *peer) bool {
	if !p.Up || p.lastSentAt == 0 || !c.named() {
		return false
	}
	if !p.gaugesComplete() {
		return false
	}
	for _, l := range c.logs.List {
		if !l.CaughtUp(p.Peer) {
			return false
		}
	}
	return true
}
