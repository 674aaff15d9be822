package core

import "time"

// peer is what this member knows of another.
type peer struct {
	m     Member
	to    []string // its ID, as an envelope wants it
	hash  uint64   // of its name, for ownership
	link  bool     // frames can be sent to it
	alive bool     // heard within the lease
	up    bool     // link and alive
	heard time.Duration
	since time.Duration // when up last changed

	lastSent   uint64        // Sent of its last beat
	lastSentAt time.Duration // when that beat came
	rtt        time.Duration // smoothed; 0 until known
	app        string
	leaving    bool
	phase      Phase
	strangers  int // states it has and this member has not

	gauges  []gaugeTable
	feeds   []uint64 // next sequence number expected
	logs    []peerLog
	traffic []Traffic
}

// peerLog is what a peer said of a log's sources.
type peerLog struct {
	full      bool // a full digest came since it was up
	known     bool // its beats name the log
	claims    []heldClaim
	target    []Position    // its claims at the first full digest, to be caught up with
	sentFull  time.Duration // when it was last sent a full digest
	wantsFull bool
}

// heldClaim is a claim by source slot.
type heldClaim struct {
	pos       Position
	digest    Digest
	hasDigest bool
	reading   bool
	badUntil  time.Duration // not asked before: it could not help
	gone      uint64        // deltas before this sequence number are not to be had there
}

func (c *Core) newPeer(m Member) *peer {
	p := &peer{
		m: m, to: []string{m.ID}, hash: hashString(m.Name), since: c.now,
		gauges: make([]gaugeTable, len(c.gauges)), feeds: make([]uint64, len(c.feeds)),
		logs: make([]peerLog, len(c.logs)), traffic: make([]Traffic, len(c.names)),
	}
	for i, l := range c.logs {
		p.logs[i].claims = make([]heldClaim, len(l.slots))
		p.logs[i].wantsFull = true
	}
	return p
}

func (p *peer) count(state int, frame []byte) {
	p.traffic[state].FramesOut++
	p.traffic[state].BytesOut += uint64(len(frame))
}

// watch updates whether p is alive and up, and forgets what vanishes with it.
func (c *Core) watch(p *peer) {
	alive := p.heard > 0 && c.now-p.heard <= c.opt.Lease
	if p.alive && !alive {
		c.dropGauges(p)
	}
	p.alive = alive
	up := alive && p.link
	if up == p.up {
		return
	}
	p.up, p.since = up, c.now
	if !up {
		c.stats.PeersLost++
		c.dropClaims(p)
	}
	c.markRoles()
}

func (c *Core) dropGauges(p *peer) {
	for i, g := range c.gauges {
		if t := &p.gauges[i]; t.ver > 0 || len(t.keys) > 0 {
			p.gauges[i] = gaugeTable{}
			g.sink.Drop(p.m.ID)
		}
	}
}

func (c *Core) dropClaims(p *peer) {
	for i, l := range c.logs {
		pl := &p.logs[i]
		pl.full, pl.wantsFull, pl.target = false, true, nil
		clear(pl.claims)
		l.abandonPeer(p)
	}
}

func (c *Core) markRoles() {
	for _, l := range c.logs {
		l.rolesDirty = true
	}
}

func (c *Core) anyUp() bool {
	for _, p := range c.peers {
		if p.up {
			return true
		}
	}
	return false
}

func (c *Core) sendBeat(p *peer) {
	if !p.link {
		return
	}
	m := beat{Seq: c.beatSeq, Sent: uint64(c.now / time.Microsecond), App: []byte(c.opt.Self.Version)}
	c.beatSeq++
	if p.lastSentAt > 0 {
		m.Echo, m.Hold = p.lastSent, uint64((c.now-p.lastSentAt)/time.Microsecond)
	}
	m.Flags = c.flags(p)
	for _, g := range c.gauges {
		m.States = append(m.States, stateInfo{stateGauge, []byte(g.name), g.version, g.ver})
	}
	for _, f := range c.feeds {
		m.States = append(m.States, stateInfo{stateFeed, []byte(f.name), f.version, f.next})
	}
	for _, l := range c.logs {
		m.States = append(m.States, stateInfo{stateLog, []byte(l.name), l.version, 0})
	}
	c.send(p, Live, 0, m.append(c.frame(kindBeat)))
}

func (c *Core) flags(p *peer) uint64 {
	var f uint64
	if c.leaving {
		f |= flagLeaving
	}
	switch c.phase {
	case Settled:
		f |= flagSettled
	case Degraded:
		f |= flagDegraded
	}
	for i := range p.logs {
		if p.logs[i].known && !p.logs[i].full {
			f |= flagWantDigest
		}
	}
	return f
}

func (c *Core) onBeat(p *peer, r reader) error {
	m := &c.in.beat
	if err := m.decode(r); err != nil {
		return err
	}
	if m.Echo > 0 {
		c.measure(p, time.Duration(m.Echo)*time.Microsecond, time.Duration(m.Hold)*time.Microsecond)
	}
	p.lastSent, p.lastSentAt = m.Sent, max(c.now, 1)
	if string(m.App) != p.app {
		p.app = string(m.App)
	}
	if leaving := m.Flags&flagLeaving != 0; leaving != p.leaving {
		p.leaving = leaving
		c.markRoles()
	}
	switch {
	case m.Flags&flagSettled != 0:
		p.phase = Settled
	case m.Flags&flagDegraded != 0:
		p.phase = Degraded
	default:
		p.phase = Settling
	}
	if m.Flags&flagWantDigest != 0 {
		for i := range p.logs {
			p.logs[i].wantsFull = true
		}
	}
	c.compareStates(p, m.States)
	return nil
}

// measure takes a round trip: the peer echoes the time of a beat of ours and
// how long it held it, so clocks need not agree.
func (c *Core) measure(p *peer, echo, hold time.Duration) {
	rtt := c.now - echo - hold
	if echo > c.now || hold > c.now || rtt < 0 || rtt > time.Minute {
		return
	}
	if p.rtt == 0 {
		p.rtt = max(rtt, 1)
		return
	}
	p.rtt += (rtt - p.rtt) / 8
}

// compareStates asks for gauges that this member has not completely.
func (c *Core) compareStates(p *peer, states []stateInfo) {
	p.strangers = 0
	for i := range p.logs {
		p.logs[i].known = false
	}
	for _, s := range states {
		known := false
		switch s.Kind {
		case stateGauge:
			if i := c.gauge(s.Name); i >= 0 {
				known = true
				c.gauges[i].compare(p, s.Ver)
			}
		case stateFeed:
			known = c.feed(s.Name) >= 0
		case stateLog:
			if i := c.log(s.Name); i >= 0 {
				known, p.logs[i].known = true, true
			}
		}
		if !known {
			p.strangers++
		}
	}
}
