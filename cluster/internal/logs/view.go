package logs

import (
	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

// SourceView is what this member knows of a source.
type SourceView struct {
	Name      string
	Position  Position
	Knowledge knowledge.State
	Lag       uint64 // sequence numbers that the furthest peer is ahead
	Role      Role
	Reading   bool   // this member reads the stream
	Reader    string // the first of those who do, by ID; "" when nobody is known to
	Followed  bool   // another member reads it
	Kept      bool   // one of those does not leave
	Reason    string // why the knowledge is Approximate
	Digest    Digest
	Unclaimed bool // there are other members, and each has said all that it knows, and nothing of this source
}

// manyDenied is how many snapshots may be refused in a row before that is no accident.
const manyDenied = 3

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
	l.enter(s)
	defer l.leave(s)
	v := SourceView{Name: s.name, Position: s.pos, Role: s.role, Reading: s.reading, Digest: s.digest}
	if s.reading {
		v.Reader = l.g.Opt.Self.ID
	}
	v.Unclaimed = len(l.g.Peers) > 0
	for _, p := range l.g.Peers {
		h := &l.of(p).claims[s.slot]
		if v.Unclaimed = v.Unclaimed && p.Up && l.of(p).full && !h.pos.Known(); !p.Up {
			continue
		}
		if h.pos.Inc == s.pos.Inc && h.pos.Next > s.pos.Next {
			v.Lag = max(v.Lag, h.pos.Next-s.pos.Next)
		}
		v.Followed = v.Followed || h.reading
		v.Kept = v.Kept || h.reading && !p.Leaving
		if h.reading && (v.Reader == "" || (v.Reader == l.g.Opt.Self.ID && l.before(p, s))) {
			v.Reader = p.ID
		}
	}
	switch {
	case !s.pos.Known():
		v.Knowledge = knowledge.Unknown
	case s.pos.Lost > 0:
		v.Knowledge = knowledge.Partial
	case s.denied >= manyDenied && v.Lag > 0:
		v.Knowledge, v.Reason = knowledge.Approximate, "others know more, and none could hand it out"
		if s.tooLarge > 0 {
			v.Reason = "its snapshot is over the limit of what one may take"
		}
	case s.pend.len() > 0 || s.load != nil || v.Lag > 0 && l.late(s):
		v.Knowledge = knowledge.CatchingUp
	default:
		v.Knowledge = knowledge.Exact
	}
	return v
}

// late reports whether what a peer is ahead is more than what is on its way: nothing is
// before the beginning is known, and later for longer than that takes nothing came or it was
// not enough.
func (l *Log) late(s *source) bool {
	return s.pos.Next == 0 || s.ahead > 0 && l.g.Now-s.ahead > l.g.Opt.Digest || s.behind > 0 && l.g.Now-s.behind > l.g.Opt.GapDelay
}

// Version returns the version of the log's encoding.
func (l *Log) Version() uint64 { return l.version }

// Name returns the log's name.
func (l *Log) Name() string { return l.name }

// Mesh reports whether every member reads every source.
func (l *Log) Mesh() bool { return l.mesh }

// PeerLogView compares a peer's knowledge of a log with ours, by what it last
// claimed.
type PeerLogView struct {
	Name    string
	Sources int    // it knows
	Reading int    // it reads
	Behind  uint64 // sources of which it says that it misses something
	Ahead   uint64 // sequence numbers that it is ahead of us, over all sources
	Equal   int    // sources with equal digests at the same position
	Differ  int    // sources with different digests at the same position
}

// Compare compares what p claimed with what is known here.
func (l *Log) Compare(p *group.Peer) PeerLogView {
	v := PeerLogView{Name: l.name, Behind: l.of(p).lacks}
	for _, s := range l.order {
		h := &l.of(p).claims[s.slot]
		if h.reading {
			v.Reading++
		}
		if !h.pos.Known() {
			continue
		}
		v.Sources++
		l.compare(s, h, &v)
	}
	return v
}

// compare adds how one source is known there and here.
func (l *Log) compare(s *source, h *heldClaim, v *PeerLogView) {
	s.lock()
	defer s.unlock()
	if h.pos.Inc != s.pos.Inc {
		return
	}
	if h.pos.Next > s.pos.Next {
		v.Ahead += h.pos.Next - s.pos.Next
	}
	mine, ok := s.digest, h.hasDigest
	if ok && h.pos.Next != s.pos.Next {
		mine, ok = s.ring.digestAt(h.pos.Next)
	}
	switch {
	case ok && h.holds(mine):
		v.Equal++
	case ok:
		v.Differ++
	}
}
