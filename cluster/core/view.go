package core

import "time"

// Knowledge is how good what is known of a source is.
type Knowledge uint8

// Kinds of knowledge.
const (
	Nothing     Knowledge = iota // nothing is known
	Approximate                  // some of what happened was lost
	CatchingUp                   // others are known to be further, or deltas wait for earlier ones
	Exact                        // everything up to the position
)

// String returns the knowledge as shown to people.
func (k Knowledge) String() string {
	return [...]string{"unknown", "approximate", "catching-up", "exact"}[k]
}

// SourceView is what this member knows of a source.
type SourceView struct {
	Name      string
	Position  Position
	Knowledge Knowledge
	Lag       uint64 // sequence numbers that the furthest peer is ahead
	Role      Role
	Reading   bool   // this member reads the stream
	Reader    string // the first of those who do, by ID; "" when nobody is known to
	Digest    Digest
}

// Source returns what is known of one source.
func (l *Log) Source(name string) (SourceView, bool) {
	s := l.sources[name]
	if s == nil {
		return SourceView{}, false
	}
	return l.view(s), true
}

// Sources appends a view of every source, by name.
func (l *Log) Sources(dst []SourceView) []SourceView {
	for _, s := range l.order {
		dst = append(dst, l.view(s))
	}
	return dst
}

func (l *Log) view(s *source) SourceView {
	v := SourceView{Name: s.name, Position: s.pos, Role: s.role, Reading: s.reading, Digest: s.digest}
	if s.reading {
		v.Reader = l.c.opt.Self.ID
	}
	for _, p := range l.c.peers {
		h := &p.logs[l.id].claims[s.slot]
		if !p.up {
			continue
		}
		if h.pos.Inc == s.pos.Inc && h.pos.Next > s.pos.Next {
			v.Lag = max(v.Lag, h.pos.Next-s.pos.Next)
		}
		if h.reading && (v.Reader == "" || (v.Reader == l.c.opt.Self.ID && l.before(p, s))) {
			v.Reader = p.m.ID
		}
	}
	switch {
	case !s.pos.Known():
		v.Knowledge = Nothing
	case s.pos.Lost > 0:
		v.Knowledge = Approximate
	case s.pend.len() > 0 || s.load != nil || (v.Lag > 0 && s.behind > 0 && l.c.now-s.behind > l.c.opt.GapDelay):
		v.Knowledge = CatchingUp
	default:
		v.Knowledge = Exact
	}
	return v
}

// Name returns the log's name.
func (l *Log) Name() string { return l.name }

// Mesh reports whether every member reads every source.
func (l *Log) Mesh() bool { return l.mesh }

// Logs returns the registered logs, in order of registration.
func (c *Core) Logs() []*Log { return c.logs }

// States returns the names of all states by index; the first is the
// heartbeats' empty name.
func (c *Core) States() []string { return c.names }

// PeerView is what this member knows of a peer.
type PeerView struct {
	Member  Member
	Link    bool          // frames can be sent to it
	Alive   bool          // it was heard within the lease
	Up      bool          // both
	For     time.Duration // how long Up has been so
	Leaving bool
	Phase   Phase
	RTT     time.Duration // 0 until measured
	// Strangers counts states that the peer has and this member has not.
	Strangers int
	Traffic   []Traffic // by state, as in States
	Logs      []PeerLogView
}

// PeerLogView compares a peer's knowledge of a log with ours, by what it last
// claimed.
type PeerLogView struct {
	Name    string
	Sources int    // it knows
	Reading int    // it reads
	Behind  uint64 // sequence numbers that it is behind us, over all sources
	Ahead   uint64 // … ahead of us
	Equal   int    // sources with equal digests at the same position
	Differ  int    // sources with different digests at the same position
}

// Peers returns a view of every peer, by ID.
func (c *Core) Peers() []PeerView {
	out := make([]PeerView, 0, len(c.peers))
	for _, p := range c.peers {
		v := PeerView{
			Member: p.m, Link: p.link, Alive: p.alive, Up: p.up, For: c.now - p.since,
			Leaving: p.leaving, Phase: p.phase, RTT: p.rtt, Strangers: p.strangers,
			Traffic: append([]Traffic(nil), p.traffic...),
		}
		if p.app != "" {
			v.Member.Version = p.app
		}
		for _, l := range c.logs {
			v.Logs = append(v.Logs, l.compare(p))
		}
		out = append(out, v)
	}
	return out
}

func (l *Log) compare(p *peer) PeerLogView {
	v := PeerLogView{Name: l.name}
	for _, s := range l.order {
		h := &p.logs[l.id].claims[s.slot]
		if h.reading {
			v.Reading++
		}
		if !h.pos.Known() {
			continue
		}
		v.Sources++
		if h.pos.Inc != s.pos.Inc {
			continue
		}
		switch {
		case h.pos.Next > s.pos.Next:
			v.Ahead += h.pos.Next - s.pos.Next
		case h.pos.Next < s.pos.Next:
			v.Behind += s.pos.Next - h.pos.Next
		}
		mine, ok := s.digest, h.hasDigest
		if ok && h.pos.Next != s.pos.Next {
			mine, ok = s.ring.digestAt(h.pos.Next)
		}
		switch {
		case ok && mine == h.digest:
			v.Equal++
		case ok:
			v.Differ++
		}
	}
	return v
}

// Reachable returns how many peers are up, and how many are known.
func (c *Core) Reachable() (up, known int) {
	for _, p := range c.peers {
		if p.up {
			up++
		}
	}
	return up, len(c.peers)
}
