package core

import "time"

// Phase returns how far this member has settled.
func (c *Core) Phase() Phase { return c.phase }

// settle looks whether this member knows enough to be asked. Settled is for
// good; Degraded becomes Settled when a peer turns up.
func (c *Core) settle() {
	if c.phase == Settled {
		return
	}
	age := c.now - c.startAt
	switch {
	case c.opt.Alone && c.named(), c.caughtUp():
		c.phase = Settled
	case len(c.peers) == 0 && age >= c.opt.LonelyTimeout, age >= c.opt.SettleTimeout:
		c.phase = Degraded
	}
}

// named reports whether the application has named the sources of every log.
func (c *Core) named() bool {
	for _, l := range c.logs {
		if !l.named {
			return false
		}
	}
	return true
}

// caughtUp reports whether this member has reached what a peer knew that had
// settled itself, or, in a group that starts, what every peer knows.
func (c *Core) caughtUp() bool {
	fresh := len(c.peers) > 0
	for _, p := range c.peers {
		ok := c.caughtUpWith(p)
		if ok && p.phase != Settling {
			return true
		}
		fresh = fresh && ok && p.phase == Settling
	}
	return fresh
}

func (c *Core) caughtUpWith(p *peer) bool {
	if !p.up || p.lastSentAt == 0 {
		return false
	}
	for i := range c.gauges {
		if t := &p.gauges[i]; t.want > 0 && !t.complete {
			return false
		}
	}
	for i, l := range c.logs {
		pl := &p.logs[i]
		if !l.named || (pl.known && (!pl.full || !l.reached(pl))) {
			return false
		}
	}
	return true
}

// reached reports whether every source is known as far as the peer knew it
// when it came up. What the peer has lost since may be lost here too.
func (l *Log) reached(pl *peerLog) bool {
	for _, s := range l.order {
		if s.slot >= len(pl.target) {
			continue
		}
		t := pl.target[s.slot]
		t.Lost = max(t.Lost, pl.claims[s.slot].pos.Lost)
		if t.Inc > s.pos.Inc || (t.Inc == s.pos.Inc && (t.Next > s.pos.Next || t.Lost < s.pos.Lost)) {
			return false
		}
	}
	return true
}

// Uptime returns how long this member has run.
func (c *Core) Uptime() time.Duration { return c.now - c.startAt }

// Leaving reports whether Leave was called.
func (c *Core) Leaving() bool { return c.leaving }
