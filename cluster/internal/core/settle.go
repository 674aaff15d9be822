package core

import (
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// Phase returns how far this member has settled.
func (c *Core) Phase() group.Phase { return c.g.Phase }

// Uptime returns how long this member has run.
func (c *Core) Uptime() time.Duration { return c.g.Now - c.startAt }

// Leaving reports whether Leave was called.
func (c *Core) Leaving() bool { return c.g.Leaving }

// settle looks whether this member knows enough to be asked. Settled is for
// good; Degraded becomes Settled when a peer turns up.
func (c *Core) settle() {
	if c.g.Phase == group.Settled {
		return
	}
	was := c.g.Phase
	defer func() {
		if c.g.Phase != was {
			c.beatNow() // others wait for it
		}
	}()
	age := c.Uptime()
	switch {
	case c.g.Opt.Alone && c.named(), c.caughtUp():
		c.g.Phase = group.Settled
		for _, l := range c.logs.List {
			l.Settled()
		}
	case !slices.ContainsFunc(c.peers, func(p *peer) bool { return !c.foreign(p) }) && age >= c.g.Opt.LonelyTimeout, age >= c.g.Opt.SettleTimeout:
		c.g.Phase = group.Degraded
	}
}

// named reports whether the application has named the sources of every log.
func (c *Core) named() bool {
	for _, l := range c.logs.List {
		if !l.Named() {
			return false
		}
	}
	return true
}

// caughtUp reports whether this member has reached what a peer knew that had
// settled itself, or, in a group that starts, what every peer knows.
func (c *Core) caughtUp() bool {
	met, starts := false, true
	for _, p := range c.peers {
		if c.foreign(p) {
			continue // it could not be asked
		}
		met = true
		if p.Phase != group.Settling {
			if c.caughtUpWith(p) {
				return true
			}
			starts = false
		}
	}
	if !met || !starts { // whatever others know that settle
		return false
	}
	if p := c.byID[c.laggard]; p != nil && !c.foreign(p) && !c.caughtUpWith(p) {
		return false // as when last asked: the others are not looked at each time
	}
	for _, p := range c.peers {
		if !c.foreign(p) && !c.caughtUpWith(p) {
			c.laggard = p.ID
			return false
		}
	}
	return true
}

func (c *Core) caughtUpWith(p *peer) bool {
	if !p.Up || p.lastSentAt == 0 || !c.named() {
		return false
	}
	for i := range p.gauges {
		if t := &p.gauges[i]; t.want > 0 && !t.complete {
			return false
		}
	}
	for _, l := range c.logs.List {
		if !l.CaughtUp(p.Peer) {
			return false
		}
	}
	return true
}
