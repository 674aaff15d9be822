package core

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// peer is this member's view of another, except for logs.
type peer struct {
	*group.Peer
	lastSeq       uint64        // number of its last beat
	lastSent      uint64        // Sent of its last beat
	lastSentAt    time.Duration // when that beat arrived
	app           string
	unknownStates int           // states that only the peer has
	met           bool          // it was up once
	acknowledged  bool          // it acknowledged that this member leaves
	every         time.Duration // between its heartbeats, as announced; 0 for older members
	clock         group.ClockDifference

	major   byte          // of its last frame with another major version
	majorAt time.Duration // when that frame arrived; 0 if none did

	gauges []gaugeTable
	lists  []bool   // by gauge: it is in the peer's last heartbeat; nil: no heartbeat yet
	feeds  []uint64 // next sequence number expected
}

// foreign reports whether p is alive but speaks another major version. Nothing is shared with it.
func (c *Core) foreign(p *peer) bool {
	return !p.Alive && p.majorAt > 0 && c.g.Now-p.majorAt <= stretch(c.g.Opt.Lease, len(c.peers))
}

// pastPeer is the state kept of a removed peer.
type pastPeer struct {
	id    string
	boot  uint64
	feeds []uint64
	rtt   group.RoundTrip
}

// maxPast is how many removed peers are remembered.
const maxPast = 16

// remember restores p's feed positions and the delay of its link if the same process was a peer before. So a
// false alarm does not deliver any hint twice.
func (c *Core) remember(p *peer) {
	for _, old := range c.past {
		if old.id == p.ID && old.boot == p.Boot {
			copy(p.feeds, old.feeds)
			p.RTT.Resume(&old.rtt)
		}
	}
}

// watch updates whether p is alive and up, and drops the state that depends on it.
func (c *Core) watch(p *peer) {
	least := c.leastLease(p)
	alive := p.LastReceived > 0 && c.g.Now-p.LastReceived <= group.LeaseOn(&p.RTT, max(p.every, c.g.Opt.Heartbeat), least)
	c.g.SetQuiet(p.Peer, alive && (c.old(p, least) || p.RTT.Slow()))
	if p.Alive && !alive {
		c.dropGauges(p)
	}
	p.Alive = alive
	up := alive && p.Link
	if up == p.Up {
		return
	}
	p.Up, p.Since, p.met = up, c.g.Now, true
	if !up {
		c.g.Stats.PeersLost++
	}
	for _, l := range c.logs.List {
		if up {
			l.PeerUp(p.Peer)
		} else {
			l.PeerDown(p.Peer)
		}
	}
}

// old reports whether p may have sent frames that are missing here, about as long ago as the lease of a fast
// link or longer. TCP delivers delayed frames together and may stall again in between, so their arrival shows
// no age. Heartbeats do: their delay is measured, and they name the frames before them.
func (c *Core) old(p *peer, least time.Duration) bool {
	sent := p.SentAt
	for _, l := range c.logs.List {
		sent = min(sent, l.WholeAt(p.Peer))
	}
	return sent == 0 || c.g.Now-sent > least*7/8
}

func (c *Core) dropGauges(p *peer) {
	for i, g := range c.gauges {
		if t := &p.gauges[i]; t.ver > 0 || len(t.keys) > 0 {
			p.gauges[i] = gaugeTable{}
			g.sink.Drop(p.ID)
		}
	}
}

func (c *Core) membersChanged() {
	for _, l := range c.logs.List {
		l.Changed()
	}
}

func (c *Core) sendBeat(p *peer) {
	if !p.Link {
		return
	}
	m := group.Beat{Seq: c.beatSeq, Sent: micros(c.g.Now), Flags: c.flags(p), App: []byte(c.g.Opt.Self.Version), Every: micros(max(c.every, c.g.Opt.Heartbeat)), Wall: c.g.Opt.Wall()}
	c.beatSeq++
	if p.lastSentAt > 0 {
		m.Echo, m.Hold = p.lastSent, micros(c.g.Now-p.lastSentAt)
	}
	for _, g := range c.gauges {
		m.States = append(m.States, group.StateInfo{Kind: group.StateGauge, Name: []byte(g.name), Version: g.version, Ver: g.ver})
	}
	for _, f := range c.feeds {
		m.States = append(m.States, group.StateInfo{Kind: group.StateFeed, Name: []byte(f.name), Version: f.version, Ver: f.next})
	}
	for _, l := range c.logs.List {
		sent, lacks := l.Sent(p.Peer)
		m.States = append(m.States, group.StateInfo{
			Kind: group.StateLog, Name: []byte(l.Name()), Version: l.Version(), Ver: sent.All, One: sent.One, Lacks: lacks,
		})
	}
	c.g.Send(p.Peer, group.Live, 0, m.Append(c.g.Frame(group.KindBeat)))
}

func micros(d time.Duration) uint64 { return uint64(d / time.Microsecond) }

func (c *Core) flags(p *peer) uint64 {
	var f uint64
	if c.g.Leaving {
		f |= group.FlagLeaving
	}
	switch c.g.Phase {
	case group.Settled:
		f |= group.FlagSettled
	case group.Degraded:
		f |= group.FlagDegraded
	}
	for _, l := range c.logs.List {
		if l.NeedsDigest(p.Peer) {
			f |= group.FlagWantDigest
		}
	}
	return f
}

func (c *Core) onBeat(p *peer, r group.Reader) error {
	m := &c.in.beat
	if err := m.Decode(r); err != nil {
		return err
	}
	if p.lastSentAt > 0 && m.Seq <= p.lastSeq {
		return nil // reordered or replayed
	}
	p.lastSeq = m.Seq
	if m.Echo > 0 {
		if rtt, ok := c.measure(p, time.Duration(m.Echo)*time.Microsecond, time.Duration(m.Hold)*time.Microsecond); ok {
			p.clock = group.CompareClocks(m.Wall, c.g.Opt.Wall(), rtt)
		}
		p.acknowledged = p.acknowledged || c.g.Leaving && m.Echo >= micros(c.leftAt)
	}
	p.lastSent, p.lastSentAt = m.Sent, max(c.g.Now, 1)
	if p.RTT.Last > 0 {
		p.SentAt = max(c.g.Now-p.RTT.Late(), 1)
	}
	p.every = time.Duration(min(m.Every, micros(time.Minute))) * time.Microsecond
	if string(m.App) != p.app {
		p.app = string(m.App)
	}
	if leaving := m.Flags&group.FlagLeaving != 0; leaving != p.Leaving {
		p.Leaving = leaving
		c.membersChanged()
		if leaving {
			c.sendBeat(p) // it waits for the acknowledgment
		}
	}
	switch {
	case m.Flags&group.FlagSettled != 0:
		p.Phase = group.Settled
	case m.Flags&group.FlagDegraded != 0:
		p.Phase = group.Degraded
	default:
		p.Phase = group.Settling
	}
	if m.Flags&group.FlagWantDigest != 0 {
		for _, l := range c.logs.List {
			l.SendFullDigest(p.Peer)
		}
	}
	c.compareStates(p, m.States)
	return nil
}

// measure updates and returns the round-trip time. The peer echoes the time of this member's beat, and
// how long it waited before it answered. The clocks need not agree.
func (c *Core) measure(p *peer, echo, hold time.Duration) (rtt time.Duration, ok bool) {
	rtt = c.g.Now - echo - hold
	if echo > c.g.Now || hold > c.g.Now || rtt < 0 || rtt > time.Minute {
		return 0, false
	}
	p.RTT.Add(c.g.Now, rtt)
	return rtt, true
}

// compareStates requests gauges that are incomplete here.
func (c *Core) compareStates(p *peer, states []group.StateInfo) {
	p.unknownStates, p.lists = 0, make([]bool, len(c.gauges))
	stated := make([]uint64, len(c.logs.List))
	for _, s := range states {
		known := false
		switch s.Kind {
		case group.StateGauge:
			if g := c.gauge(s.Name); g != nil {
				known, p.lists[g.id] = true, true
				g.compare(p, s.Ver)
			}
		case group.StateFeed:
			known = c.feed(s.Name) != nil
		case group.StateLog:
			for i, l := range c.logs.List {
				if l.Name() == string(s.Name) {
					known, stated[i] = true, max(1, s.Version)
					l.SetSent(p.Peer, group.Numbers{All: s.Ver, One: s.One}, s.Lacks)
				}
			}
		}
		if !known {
			p.unknownStates++
		}
	}
	for i, l := range c.logs.List {
		l.SetStated(p.Peer, stated[i])
	}
}
