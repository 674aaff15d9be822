package core

import (
	"slices"
	"strings"
	"time"
)

// Core is the state machine of one member. See the package comment.
type Core struct {
	opt      Options
	selfHash uint64 // of the own name, for ownership
	now      time.Duration
	started  bool
	startAt  time.Duration
	seq      uint64 // numbers asks
	peers    []*peer
	byID     map[string]*peer
	past     []*peer // the last ones removed

	gauges []*Gauge
	feeds  []*Feed
	logs   []*Log
	names  []string // of all states, in order of their indexes; names[0] is ""

	out      []Envelope
	nextBeat time.Duration
	beatSeq  uint64
	leaving  bool
	phase    Phase
	stats    Stats
	in       inbox
}

// inbox holds decoded messages, reused from frame to frame.
type inbox struct {
	beat   beat
	gauge  gaugeMsg
	feed   feedMsg
	delta  deltaMsg
	group  group
	digest digestMsg
	ask    ask
	deltas rangeReply
	page   pageReply
}

// New returns a Core without peers and states. Its clock starts with the first
// Advance.
func New(opt Options) *Core {
	opt = opt.withDefaults()
	return &Core{opt: opt, selfHash: hashString(opt.Self.Name), byID: map[string]*peer{}, names: []string{""}}
}

// Self returns this member.
func (c *Core) Self() Member { return c.opt.Self }

// Advance moves the clock, which never goes back. It must be called before any
// other input, so that time is right when the input is looked at.
func (c *Core) Advance(now time.Duration) {
	if !c.started {
		c.started, c.startAt, c.now = true, now, now
	}
	c.now = max(c.now, now)
}

// Drain returns the frames to be sent, in order. The slice is valid until the
// next call.
func (c *Core) Drain() []Envelope {
	out := c.out
	c.out = c.out[:0]
	return out
}

// Tick does what is due.
func (c *Core) Tick() {
	for _, p := range c.peers {
		c.watch(p)
	}
	if c.now >= c.nextBeat {
		for _, p := range c.peers {
			c.sendBeat(p)
		}
		c.nextBeat = c.now + c.opt.Heartbeat
	}
	for _, g := range c.gauges {
		g.tick()
	}
	for _, f := range c.feeds {
		f.tick()
	}
	for _, l := range c.logs {
		l.tick()
	}
	c.settle()
}

// Deadline returns when Tick is due next. Inputs may bring it forward.
func (c *Core) Deadline() time.Duration {
	d := c.nextBeat
	for _, g := range c.gauges {
		d = min(d, g.flushAt)
	}
	for _, f := range c.feeds {
		d = min(d, f.flushAt)
	}
	for _, l := range c.logs {
		d = min(d, l.deadline())
	}
	return d
}

// Leave announces that this member hands over its sources and will go. It goes
// on serving; HandedOver says when it may stop.
func (c *Core) Leave() {
	c.leaving = true
	c.nextBeat = c.now
	for _, l := range c.logs {
		l.rolesDirty = true
	}
}

// HandedOver reports whether every source that this member reads is read by a
// reachable peer too, or nobody is there to take them.
func (c *Core) HandedOver() bool {
	if !c.anyUp() {
		return true
	}
	for _, l := range c.logs {
		if !l.handedOver() {
			return false
		}
	}
	return true
}

// register names a state and returns its index.
func (c *Core) register(name string) int {
	if name == "" || len(name) > MaxName {
		panic("cluster: bad state name " + name)
	}
	if slices.Contains(c.names, name) {
		panic("cluster: state " + name + " registered twice")
	}
	if len(c.peers) > 0 {
		panic("cluster: state " + name + " registered after the start")
	}
	c.names = append(c.names, name)
	return len(c.names) - 1
}

// SetMembers replaces the view of who is in the group. It may or may not list
// this member. A peer with a new boot is a new peer.
func (c *Core) SetMembers(members []Member) {
	seen := make(map[string]bool, len(members))
	changed := false
	for _, m := range members {
		if m.ID == c.opt.Self.ID || m.ID == "" {
			continue
		}
		if m.Name == "" {
			m.Name = m.ID
		}
		seen[m.ID] = true
		p := c.byID[m.ID]
		if p != nil && p.m.Boot == m.Boot {
			changed = changed || p.m.Name != m.Name
			p.m, p.hash = m, hashString(m.Name)
			continue
		}
		if p != nil {
			c.remove(p)
		}
		c.add(m)
		changed = true
	}
	for _, p := range slices.Clone(c.peers) {
		if !seen[p.m.ID] {
			c.remove(p)
			changed = true
		}
	}
	if changed {
		c.markRoles()
	}
}

func (c *Core) add(m Member) {
	p := c.newPeer(m)
	c.remember(p)
	c.byID[m.ID] = p
	i, _ := slices.BinarySearchFunc(c.peers, m.ID, func(p *peer, id string) int {
		return strings.Compare(p.m.ID, id)
	})
	c.peers = slices.Insert(c.peers, i, p)
}

func (c *Core) remove(p *peer) {
	p.link, p.heard = false, 0
	c.watch(p)
	delete(c.byID, p.m.ID)
	p.logs, p.gauges = nil, nil
	c.past = append(c.past, p)
	if len(c.past) > maxPast {
		c.past = c.past[1:]
	}
	c.peers = slices.DeleteFunc(c.peers, func(q *peer) bool { return q == p })
}

// maxPast is how many removed peers are remembered.
const maxPast = 16

// remember gives p the feed positions of its process if that was a peer
// before, so that a false alarm about it makes no hint come twice.
func (c *Core) remember(p *peer) {
	for _, old := range c.past {
		if old.m.ID == p.m.ID && old.m.Boot == p.m.Boot {
			copy(p.feeds, old.feeds)
		}
	}
}

// SetLink says whether frames can be sent to a peer. A link that goes down is
// taken as evidence that the peer is gone, before membership says so.
func (c *Core) SetLink(id string, up bool) {
	p := c.byID[id]
	if p == nil || p.link == up {
		return
	}
	p.link = up
	if up {
		c.sendBeat(p)
	} else {
		p.heard = 0
	}
	c.watch(p)
}

// Receive takes a frame that the member from sent. The caller has
// authenticated from.
func (c *Core) Receive(from string, frame []byte) {
	p := c.byID[from]
	switch {
	case p == nil:
		c.refuse(RefusedMember)
	case len(frame) > MaxFrame:
		c.refuse(RefusedOversized)
	case len(frame) < headerLen:
		c.refuse(RefusedMalformed)
	case frame[0] != Major:
		c.refuse(RefusedVersion)
	default:
		c.receive(p, frame)
	}
}

func (c *Core) receive(p *peer, frame []byte) {
	r := reader{b: frame[3:]}
	if r.u64() != p.m.Boot {
		c.refuse(RefusedBoot)
		return
	}
	idx, err := c.dispatch(p, frame[2], r)
	if err != nil {
		c.refuse(RefusedMalformed)
		return
	}
	p.traffic[idx].FramesIn++
	p.traffic[idx].BytesIn += uint64(len(frame))
	p.heard = max(c.now, 1)
	c.watch(p)
}

// dispatch decodes and handles one frame, and returns the index of its state.
func (c *Core) dispatch(p *peer, kind byte, r reader) (int, error) {
	switch kind {
	case kindBeat:
		return 0, c.onBeat(p, r)
	case kindGauge, kindGaugeAsk:
		return c.onGauge(p, kind, r)
	case kindFeed:
		return c.onFeed(p, r)
	case kindDelta:
		return c.onDelta(p, r)
	case kindDigest:
		return c.onDigest(p, r)
	case kindRangeAsk, kindPageAsk:
		return c.onAsk(p, kind, r)
	case kindRangeReply:
		return c.onRangeReply(p, r)
	case kindPageReply:
		return c.onPageReply(p, r)
	}
	c.refuse(RefusedKind)
	return 0, nil
}

// frame starts a frame of this member.
func (c *Core) frame(kind byte) []byte {
	return header(make([]byte, 0, 256), kind, c.opt.Self.Boot)
}

// send queues a frame for one peer.
func (c *Core) send(p *peer, class Class, state int, frame []byte) {
	p.count(state, frame)
	c.out = append(c.out, Envelope{To: p.to, Class: class, State: c.names[state], Frame: frame})
}

// broadcast queues a frame for every peer.
func (c *Core) broadcast(class Class, state int, frame []byte) {
	if len(c.peers) == 0 {
		return
	}
	for _, p := range c.peers {
		p.count(state, frame)
	}
	c.out = append(c.out, Envelope{Class: class, State: c.names[state], Frame: frame})
}
