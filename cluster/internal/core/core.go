package core

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
)

// Core is the state machine of one member. See the package comment.
type Core struct {
	g       *group.Group
	started bool
	startAt time.Duration
	peers   []*peer // by ID
	byID    map[string]*peer
	links   map[string]bool                   // peers that frames can be sent to, members or not
	past    []pastPeer                        // the last peers removed
	boots   atomic.Pointer[map[string]uint64] // of the members, by ID, for Deliver

	gauges  []*Gauge
	feeds   []*Feed
	directs []*Direct
	logs    *logs.Set

	updated    time.Duration // last update of gauges and feeds; 0: none
	nextBeat   time.Duration
	lastBeat   time.Duration
	every      time.Duration // between heartbeats, as last computed
	leftAt     time.Duration // when Leave was called
	beatSeq    uint64
	caughtUpAt time.Duration // when this member had first caught up with a peer; 0: not yet
	laggard    string        // ID of a peer that this member had not caught up with at the last check
	in         inbox
}

// inbox holds decoded messages, reused for every frame.
type inbox struct {
	beat   group.Beat
	gauge  group.Gauge
	ask    group.GaugeAsk
	feed   group.Feed
	direct group.Direct
}

// New returns a Core without peers and states. Its clock starts with the first
// Advance.
func New(opt group.Options) *Core {
	g := group.New(opt)
	c := &Core{g: g, byID: map[string]*peer{}, links: map[string]bool{}, logs: logs.NewSet(g)}
	c.boots.Store(&map[string]uint64{})
	return c
}

// Self returns this member.
func (c *Core) Self() group.Member { return c.g.Opt.Self }

// NewLog registers a log.
func (c *Core) NewLog(name string, version uint64, store logs.LogStore, opt logs.LogOptions) *logs.Log {
	return c.logs.New(name, version, store, opt)
}

// Advance moves the clock forward. Call it before any other input.
func (c *Core) Advance(now time.Duration) {
	if !c.started {
		c.started, c.startAt, c.g.Now = true, now, now
	}
	c.g.Now = max(c.g.Now, now)
}

// Drain returns the frames to send, in order. The slice is valid until the next call.
func (c *Core) Drain() []group.Envelope { return c.g.Drain() }

// Jobs returns the jobs created since the last call. Begin and End are inputs; Run runs outside of
// the inputs, on any goroutine.
func (c *Core) Jobs() []group.Job { return c.g.Jobs() }

// Tick runs everything that is due.
func (c *Core) Tick() {
	for _, p := range c.peers {
		c.watch(p)
	}
	if c.g.Now >= c.nextBeat {
		c.beat()
	}
	c.update()
	for _, l := range c.logs.List {
		l.Tick()
	}
	c.settle()
}

// update sends the changes of all gauges and feeds if those of one are due, so that peers wake up once.
func (c *Core) update() {
	if c.g.Now < c.updateAt() {
		return
	}
	c.updated = c.g.Now
	for _, g := range c.gauges {
		g.flush()
	}
	for _, f := range c.feeds {
		f.flush()
	}
}

// updateAt returns when the next update is due.
func (c *Core) updateAt() time.Duration {
	at := group.Never
	for _, g := range c.gauges {
		at = min(at, g.flushAt)
	}
	for _, f := range c.feeds {
		at = min(at, f.flushAt)
	}
	return at
}

// paced returns when a change made now is sent if its own delay is d.
func (c *Core) paced(d time.Duration) time.Duration {
	at := c.g.Now + d
	if c.updated > 0 {
		at = max(at, c.updated+c.g.Opt.Pace)
	}
	return at
}

// Deadline returns when the next Tick is due. Inputs may bring it forward.
func (c *Core) Deadline() time.Duration {
	d := min(c.nextBeat, c.updateAt())
	for _, l := range c.logs.List {
		d = min(d, l.Deadline())
	}
	return d
}

// Leave announces that this member hands over its sources and will stop. It continues to serve
// until SourcesTransferred returns true.
func (c *Core) Leave() {
	c.g.Leaving, c.leftAt = true, c.g.Now
	c.beatNow()
	c.membersChanged()
}

// SourcesTransferred reports, after Leave, whether this member may stop. A reachable peer must read
// each of its sources, and every reachable peer must have acknowledged the announcement, so that no
// peer takes the stop for a crash. The wait for acknowledgements ends after four leases. It returns
// true if no peer is reachable.
func (c *Core) SourcesTransferred() bool {
	if up, _ := c.g.Reachable(); up == 0 {
		return true
	}
	unreported := func(p *peer) bool { return p.Up && !p.acknowledged }
	if c.g.Now-c.leftAt < 4*c.g.Opt.Lease && slices.ContainsFunc(c.peers, unreported) {
		return false
	}
	for _, l := range c.logs.List {
		if !l.SourcesTransferred() {
			return false
		}
	}
	return true
}

// SetMembers replaces the list of members. This member may be in it or not. A peer with a new boot
// is a new peer.
func (c *Core) SetMembers(members []group.Member) {
	seen := make(map[string]bool, len(members))
	for _, m := range members {
		if m.ID == c.g.Opt.Self.ID || m.ID == "" {
			continue
		}
		if m.Name == "" {
			m.Name = m.ID
		}
		seen[m.ID] = true
		p := c.byID[m.ID]
		if p != nil && p.Boot == m.Boot {
			if p.Name != m.Name || p.Zone != m.Zone {
				c.membersChanged()
			}
			p.Member, p.Hash = m, group.Hash(m.Name)
			continue
		}
		if p != nil {
			c.remove(p)
		}
		c.add(m)
	}
	for _, p := range slices.Clone(c.peers) {
		if !seen[p.ID] {
			c.remove(p)
		}
	}
	boots := make(map[string]uint64, len(c.peers))
	for _, p := range c.peers {
		boots[p.ID] = p.Boot
	}
	c.boots.Store(&boots)
}

func (c *Core) add(m group.Member) {
	p := &peer{
		Peer: c.g.Add(m), gauges: make([]gaugeTable, len(c.gauges)), feeds: make([]uint64, len(c.feeds)),
	}
	c.remember(p)
	for _, l := range c.logs.List {
		l.AddPeer(p.Peer)
	}
	c.byID[m.ID] = p
	i, _ := slices.BinarySearchFunc(c.peers, m.ID, func(p *peer, id string) int {
		return strings.Compare(p.ID, id)
	})
	c.peers = slices.Insert(c.peers, i, p)
	c.meetFirst()
	if c.links[m.ID] {
		c.link(p, true)
	}
}

func (c *Core) remove(p *peer) {
	p.Link, p.LastReceived = false, 0
	c.watch(p)
	delete(c.byID, p.ID)
	c.peers = slices.DeleteFunc(c.peers, func(q *peer) bool { return q == p })
	for _, l := range c.logs.List {
		l.PeerDown(p.Peer)
	}
	c.g.Remove(p.Peer)
	c.past = append(c.past, pastPeer{p.ID, p.Boot, p.feeds, p.RTT})
	if len(c.past) > maxPast {
		c.past = c.past[1:]
	}
}

// SetLink sets whether frames can be sent to a peer. The link state may arrive before the peer is a
// member, and it survives the peer's removal. A link that goes down counts as evidence that the
// peer is gone, before membership reports it.
func (c *Core) SetLink(id string, up bool) {
	if up {
		c.links[id] = true
	} else {
		delete(c.links, id)
	}
	if p := c.byID[id]; p != nil && p.Link != up {
		c.link(p, up)
	}
}

func (c *Core) link(p *peer, up bool) {
	p.Link = up
	if up {
		c.sendBeat(p)
	} else {
		p.LastReceived = 0
	}
	c.watch(p)
}

// Deltas is a frame of live deltas on its way from Deliver to Receive.
type Deltas = group.Deltas

// Deliver merges a frame of live deltas as far as the locks of the sources allow. It may run
// concurrently with other methods. The caller must then pass the same frame to ReceiveDelivered,
// with m if ok is true and with nil otherwise. due is when Tick has work because of this frame.
func (c *Core) Deliver(now time.Duration, from string, frame []byte, m *Deltas) (due time.Duration, ok bool) {
	boot, member := (*c.boots.Load())[from]
	switch {
	case !member, len(frame) > group.MaxFrame, len(frame) < group.HeaderLen:
	case frame[0] != group.Major, group.Boot(frame) != boot:
	case frame[2] == group.KindDelta, frame[2] == group.KindRelay:
		return c.logs.Deliver(now, group.Body(frame), m)
	case frame[2] == group.KindRelayed:
		return c.deliverRelayed(now, group.Body(frame), m)
	}
	return group.Never, false
}

// deliverRelayed is Deliver for deltas that a relay forwarded.
func (c *Core) deliverRelayed(now time.Duration, r group.Reader, m *Deltas) (due time.Duration, ok bool) {
	var by group.Relayed
	if by.Decode(&r) != nil {
		return group.Never, false
	}
	if boot, member := (*c.boots.Load())[string(by.ID)]; !member || boot != by.Boot {
		return group.Never, false
	}
	return c.logs.Deliver(now, r, m)
}

// Fresh reports whether Tick has work that Deadline does not yet cover. Safe for concurrent use.
func (c *Core) Fresh() bool {
	for _, l := range c.logs.List {
		if l.Fresh() {
			return true
		}
	}
	return false
}

// Receive handles a frame from a member. The caller has authenticated the sender.
func (c *Core) Receive(from string, frame []byte) { c.ReceiveDelivered(from, frame, nil) }

// ReceiveDelivered is Receive for a frame that was passed to Deliver.
func (c *Core) ReceiveDelivered(from string, frame []byte, m *Deltas) {
	p := c.byID[from]
	switch {
	case p == nil:
		c.g.Refuse(group.RefusedMember)
	case len(frame) > group.MaxFrame:
		c.g.Refuse(group.RefusedOversized)
	case len(frame) < group.HeaderLen:
		c.g.Refuse(group.RefusedMalformed)
	case frame[0] != group.Major:
		p.major, p.majorAt = frame[0], max(c.g.Now, 1)
		c.g.Refuse(group.RefusedVersion)
	case group.Boot(frame) != p.Boot:
		c.g.Refuse(group.RefusedBoot)
	default:
		c.receive(p, frame, m)
	}
}

func (c *Core) receive(p *peer, frame []byte, m *Deltas) {
	state, err := c.dispatch(p, frame[2], group.Body(frame), m)
	if err != nil {
		c.g.Refuse(group.RefusedMalformed)
		return
	}
	c.g.Received(p.Peer, state, frame)
	p.LastReceived, p.Minor = max(c.g.Now, 1), frame[1]
	c.watch(p)
}

// dispatch decodes and handles one frame and returns its state's index.
func (c *Core) dispatch(p *peer, kind byte, r group.Reader, m *Deltas) (int, error) {
	switch kind {
	case group.KindBeat:
		return 0, c.onBeat(p, r)
	case group.KindGauge:
		return c.onGauge(p, r)
	case group.KindGaugeAsk:
		return c.onGaugeAsk(p, r)
	case group.KindFeed:
		return c.onFeed(p, r)
	case group.KindDelta, group.KindDigest, group.KindRangeAsk, group.KindPageAsk, group.KindRangeReply, group.KindPageReply,
		group.KindMissed, group.KindTips, group.KindRelay:
		return c.logs.Receive(p.Peer, kind, r, m)
	case group.KindRelayed:
		return c.onRelayed(r, m)
	case group.KindDirect:
		return c.onDirect(p, r)
	}
	c.g.Refuse(group.RefusedKind)
	return 0, nil
}

// onRelayed handles deltas that a relay forwarded as if the writer had sent them. They are no
// evidence that the writer is alive.
func (c *Core) onRelayed(r group.Reader, m *Deltas) (int, error) {
	var by group.Relayed
	if err := by.Decode(&r); err != nil {
		return 0, err
	}
	switch p := c.byID[string(by.ID)]; {
	case p == nil:
		c.g.Refuse(group.RefusedMember)
	case p.Boot != by.Boot:
		c.g.Refuse(group.RefusedBoot)
	default:
		return c.logs.Receive(p.Peer, group.KindDelta, r, m)
	}
	return 0, nil
}
