package core

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
)

// PeerView is what this member knows of a peer.
type PeerView struct {
	Member  group.Member
	Link    bool          // frames can be sent to it
	Alive   bool          // it was heard within the lease
	Up      bool          // both
	Met     bool          // it was up once
	For     time.Duration // how long Up has been so
	Leaving bool
	Phase   group.Phase
	RTT     time.Duration // 0 until measured
	// Foreign is the major version of the protocol that it speaks, if that is another one
	// than this member's; else 0.
	Foreign byte
	// Strangers counts states that the peer has and this member has not.
	Strangers int
	Traffic   []group.Traffic // by state, as in States
}

// Peers returns a view of every peer, by ID.
func (c *Core) Peers() []PeerView {
	out := make([]PeerView, 0, len(c.peers))
	for _, p := range c.peers {
		v := PeerView{
			Member: p.Member, Link: p.Link, Alive: p.Alive, Up: p.Up, Met: p.met, For: c.g.Now - p.Since,
			Leaving: p.Leaving, Phase: p.Phase, RTT: p.RTT, Strangers: p.strangers,
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

// Compare compares what a peer claimed of each log with what is known here.
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

// States returns the names of all states by index; the first is the
// heartbeats' empty name.
func (c *Core) States() []string { return c.g.States() }

// Stats returns the counters.
func (c *Core) Stats() group.Stats {
	s, _ := c.Look(nil)
	return s
}

// Reachable returns how many peers are up, and how many are known.
func (c *Core) Reachable() (up, known int) { return c.g.Reachable() }

// Look returns the counters and what is held now, and calls f, unless it is nil, with a view of
// every source of each log, which is valid until f returns. Rings are bounded by
// Options.RingBytes, pending deltas and pushes by Options.PendingBytes, per source; snapshots by
// Options.SnapshotCache, but for one that is larger, and loads by a window of pages each.
func (c *Core) Look(f func(log int, v *logs.SourceView)) (group.Stats, group.Held) {
	var h group.Held
	for i, l := range c.logs.List {
		var each func(*logs.SourceView)
		if f != nil {
			each = func(v *logs.SourceView) { f(i, v) }
		}
		l.Look(&h, each)
	}
	return c.g.Stats, h
}

// Held returns what is held now; see Look.
func (c *Core) Held() group.Held {
	_, h := c.Look(nil)
	return h
}
