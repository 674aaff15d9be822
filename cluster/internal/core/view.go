package core

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
)

// PeerView is this member's view of a peer.
type PeerView struct {
	Member  group.Member
	Link    bool          // frames can be sent to it
	Alive   bool          // a frame arrived within the lease
	Up      bool          // both
	Met     bool          // it was up once
	For     time.Duration // time since Up last changed
	Leaving bool
	Phase   group.Phase
	RTT     time.Duration // 0 until measured
	Recent  time.Duration // the least round trip of the last seconds: the delay of the link itself
	Slow    bool          // that delay exceeds the limit
	Clock   group.ClockDifference
	// Foreign is the peer's major protocol version if it differs from this member's; otherwise 0.
	Foreign byte
	// UnknownStates counts the states that only the peer has.
	UnknownStates int
	Traffic       []group.Traffic // by state, as in States
}

// Peers returns a view of every peer, by ID.
func (c *Core) Peers() []PeerView {
	out := make([]PeerView, 0, len(c.peers))
	for _, p := range c.peers {
		v := PeerView{
			Member: p.Member, Link: p.Link, Alive: p.Alive, Up: p.Up, Met: p.met, For: c.g.Now - p.Since,
			Leaving: p.Leaving, Phase: p.Phase, RTT: p.RTT.Smoothed, Recent: p.RTT.Recent(), Slow: p.RTT.Slow(), Clock: p.clock, UnknownStates: p.unknownStates,
			Traffic: append([]group.Traffic(nil), p.Traffic...),
		}
		if c.foreign(p) {
			v.Foreign = p.major
		}
		if p.app != "" {
			v.Member.Version = p.app
		}
		out = append(out, v)
	}
	return out
}

// Compare compares a peer's claims about each log with the content here.
func (c *Core) Compare(id string) (out []logs.PeerLogView) {
	if p := c.byID[id]; p != nil {
		for _, l := range c.logs.List {
			out = append(out, l.Compare(p.Peer))
		}
	}
	return out
}

// Logs returns the registered logs, in order of registration.
func (c *Core) Logs() []*logs.Log { return c.logs.List }

// States returns the names of all states by index. The first is the empty name that heartbeats use.
func (c *Core) States() []string { return c.g.States() }

// Stats returns the counters.
func (c *Core) Stats() group.Stats {
	s, _ := c.Look(nil)
	return s
}

// Reaches reports whether the member is up and does not leave, and whether it was up once.
func (c *Core) Reaches(id string) (now, ever bool) {
	p := c.byID[id]
	return p != nil && p.Up && !p.Leaving, p != nil && p.met
}

// Reachable returns the number of peers that are up, and of all peers.
func (c *Core) Reachable() (up, known int) { return c.g.Reachable() }

// Look returns the counters and the memory held. It calls f, if not nil, with a view of every
// source of each log; the view is valid until f returns. Limits per source: rings
// Options.RingBytes, pending deltas and pushes Options.PendingBytes. Snapshots are bounded by
// Options.SnapshotCache, except a single larger one, and loads by a window of pages each.
func (c *Core) Look(f func(log int, v *logs.SourceView)) (group.Stats, group.MemoryUse) {
	var h group.MemoryUse
	for i, l := range c.logs.List {
		var each func(*logs.SourceView)
		if f != nil {
			each = func(v *logs.SourceView) { f(i, v) }
		}
		l.Look(&h, each)
	}
	return c.g.Stats, h
}

// MemoryUse returns the memory held; see Look.
func (c *Core) MemoryUse() group.MemoryUse {
	_, h := c.Look(nil)
	return h
}
