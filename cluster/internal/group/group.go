package group

import (
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Group is one member's view of the group.
type Group struct {
	Opt      Options
	SelfHash uint64 // hash of this member's name, for ownership
	Now      time.Duration
	Peers    []*Peer // by ID
	Leaving  bool
	Phase    Phase
	Stats    Stats

	LastSent time.Duration // when a frame was last sent to all peers

	asks  uint64
	names []string // of all states, by index; names[0] is ""
	out   []Envelope
	jobs  []Job
	slots []bool // true for slots in use
	quiet int    // peers with Quiet

	quietUntil time.Duration // when the last peer ceased to be Quiet; 0: none was
}

// Peer is this member's view of another member.
type Peer struct {
	Member
	Slot         int           // small number, unique among present peers
	To           []string      // its ID, in the form that Envelope.To takes
	Hash         uint64        // of its name, for ownership
	Link         bool          // frames can be sent to it
	Minor        byte          // of its last frame; 0 before the first frame
	Alive        bool          // a frame arrived within the lease
	Up           bool          // Link and Alive
	LastReceived time.Duration // 0 when no frame arrived, or none since the link broke
	Since        time.Duration // when Up last changed
	// SentAt is when its last heartbeat was sent, without the delay of the link itself; 0 until that is
	// measured.
	SentAt time.Duration
	// Quiet means that the peer is alive, but that what it sent within the lease of a fast link may be
	// missing here, or that the link is slower than MaxRoundTrip.
	Quiet bool

	RTT     RoundTrip
	Leaving bool
	Phase   Phase
	Traffic []Traffic // by state
}

// New returns a Group without peers and states.
func New(opt Options) *Group {
	opt = opt.WithDefaults()
	return &Group{Opt: opt, SelfHash: Hash(opt.Self.Name), names: []string{""}}
}

// Hash is the hash of names that ownership uses.
func Hash(s string) uint64 { return xxhash.Sum64String(s) }

// Register names a state and returns its index. It panics if the name is empty, too long or taken,
// which is a bug of the caller.
func (g *Group) Register(name string) int {
	switch {
	case name == "" || len(name) > MaxName:
		panic("cluster: bad state name " + name)
	case slices.Contains(g.names, name):
		panic("cluster: state " + name + " registered twice")
	case len(g.Peers) > 0:
		panic("cluster: state " + name + " registered after the start")
	}
	g.names = append(g.names, name)
	return len(g.names) - 1
}

// States returns the names of all states by index; the first is the
// heartbeats' empty name.
func (g *Group) States() []string { return g.names }

// Add adds a peer and gives it a free slot.
func (g *Group) Add(m Member) *Peer {
	slot := slices.Index(g.slots, false)
	if slot < 0 {
		slot = len(g.slots)
		g.slots = append(g.slots, false)
	}
	g.slots[slot] = true
	p := &Peer{
		Member: m, Slot: slot, To: []string{m.ID}, Hash: Hash(m.Name), Since: g.Now,
		Traffic: make([]Traffic, len(g.names)),
	}
	i, _ := slices.BinarySearchFunc(g.Peers, m.ID, func(p *Peer, id string) int {
		return strings.Compare(p.ID, id)
	})
	g.Peers = slices.Insert(g.Peers, i, p)
	return p
}

// Remove removes a peer. Its slot may be reused.
func (g *Group) Remove(p *Peer) {
	g.Peers = slices.DeleteFunc(g.Peers, func(q *Peer) bool { return q == p })
	g.slots[p.Slot] = false
}

// SetQuiet sets the peer's Quiet.
func (g *Group) SetQuiet(p *Peer, quiet bool) {
	if quiet == p.Quiet {
		return
	}
	p.Quiet = quiet
	if quiet {
		g.quiet++
	} else {
		g.quiet--
		g.quietUntil = g.Now
	}
}

// AnyQuiet reports whether any peer is Quiet.
func (g *Group) AnyQuiet() bool { return g.quiet > 0 }

// LatelyQuiet reports whether any peer is Quiet, or was within the last lease.
func (g *Group) LatelyQuiet() bool {
	return g.quiet > 0 || g.quietUntil > 0 && g.Now-g.quietUntil < g.Opt.Lease
}

// Reachable returns the number of peers that are up, and of all peers.
func (g *Group) Reachable() (up, known int) {
	for _, p := range g.Peers {
		if p.Up {
			up++
		}
	}
	return up, len(g.Peers)
}

// Frame starts a frame of this member.
func (g *Group) Frame(kind byte) []byte {
	return Header(make([]byte, 0, 256), kind, g.Opt.Self.Boot)
}

// NextRequestID returns the next request ID.
func (g *Group) NextRequestID() uint64 {
	g.asks++
	return g.asks
}

// Send queues a frame for one peer.
func (g *Group) Send(p *Peer, class Class, state int, frame []byte) {
	g.count(p, state, frame)
	g.out = append(g.out, Envelope{To: p.To, Class: class, State: g.names[state], Frame: frame})
}

// Broadcast queues a frame for every peer.
func (g *Group) Broadcast(class Class, state int, frame []byte) {
	if len(g.Peers) == 0 {
		return
	}
	g.LastSent = g.Now
	for _, p := range g.Peers {
		g.count(p, state, frame)
	}
	g.out = append(g.out, Envelope{Class: class, State: g.names[state], Frame: frame})
}

// SendTo queues a frame for some peers.
func (g *Group) SendTo(peers []*Peer, class Class, state int, frame []byte) {
	if len(peers) == 0 {
		return
	}
	to := make([]string, 0, len(peers))
	for _, p := range peers {
		g.count(p, state, frame)
		to = append(to, p.ID)
	}
	g.out = append(g.out, Envelope{To: to, Class: class, State: g.names[state], Frame: frame})
}

// InRemoteZone reports whether p is known to be in another zone.
func (g *Group) InRemoteZone(p *Peer) bool {
	return g.Opt.Self.Zone != "" && p.Zone != "" && p.Zone != g.Opt.Self.Zone
}

// Drain returns the queued frames, in order, until the next call.
func (g *Group) Drain() []Envelope {
	out := g.out
	g.out = g.out[:0]
	return out
}

// Refuse counts a rejected frame, or a rejected part of one.
func (g *Group) Refuse(r Refusal) { g.Stats.Refused[r]++ }

// UnknownState counts a frame for a state that this member does not have. It returns the index that
// accounts for such frames.
func (g *Group) UnknownState() int {
	g.Refuse(RefusedState)
	return 0
}

func (g *Group) count(p *Peer, state int, frame []byte) {
	p.Traffic[state].FramesOut++
	p.Traffic[state].BytesOut += uint64(len(frame))
	if g.InRemoteZone(p) {
		g.Stats.BorderOut += uint64(len(frame))
	}
}

// Received counts a frame from p.
func (g *Group) Received(p *Peer, state int, frame []byte) {
	p.Traffic[state].FramesIn++
	p.Traffic[state].BytesIn += uint64(len(frame))
	if g.InRemoteZone(p) {
		g.Stats.BorderIn += uint64(len(frame))
	}
}
