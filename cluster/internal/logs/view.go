package logs

import (
	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

// SourceView is this member's view of a source.
type SourceView struct {
	Name             string
	Position         Position
	Knowledge        knowledge.State
	Lag              uint64 // sequence numbers by which the furthest peer is ahead
	Role             Role
	Reading          bool   // this member reads the stream
	Reader           string // ID of the first reader; "" if none is known
	Followed         bool   // another member reads it
	HasStayingReader bool   // at least one of those is not leaving
	Reason           string // why the state is Approximate
	Digest           Digest
	Unclaimed        bool // there are peers, each sent a full digest, and none of them named this source
}

// manyDenied is the number of consecutive refusals of snapshots that indicates a real problem.
const manyDenied = 3

// Source returns the view of one source.
func (l *Log) Source(name string) (v SourceView, ok bool) {
	s := l.sources[name]
	if s == nil {
		return v, false
	}
	l.enter(s)
	defer s.unlock()
	return l.view(s), true
}

// Sources appends a view of every source, by name.
func (l *Log) Sources(dst []SourceView) []SourceView {
	for _, s := range l.order {
		l.enter(s)
		dst = append(dst, l.view(s))
		s.unlock()
	}
	return dst
}

// Look adds the delta counters to Stats and the log's memory to h. It calls f, if not nil, with a
// view of every source, by name. The view is valid until f returns.
func (l *Log) Look(h *group.MemoryUse, f func(*SourceView)) {
	h.Snapshots += l.snapBytes
	var v SourceView
	for _, s := range l.order {
		s.lock()
		if s.counts != (group.DeltaCounts{}) {
			s.counts.AddTo(&l.g.Stats)
		}
		h.Rings += s.ring.bytes
		h.Pending += s.pend.bytes
		h.Pushes += s.pushLen
		if s.load != nil {
			h.Loads += int(s.load.held)
		}
		if f != nil {
			l.attend(s)
			v = l.view(s)
		}
		s.unlock()
		if f != nil {
			f(&v)
		}
	}
}

// view returns the view of s, which is locked.
func (l *Log) view(s *source) SourceView {
	w := l.wordOf(s)
	v := SourceView{
		Name: s.name, Position: s.pos, Role: s.role, Reading: s.reading, Reader: w.reader, Digest: s.digest,
		Followed: w.followed, HasStayingReader: w.kept, Unclaimed: w.unclaimed,
	}
	if w.far > s.pos.Next {
		v.Lag = w.far - s.pos.Next
	}
	switch {
	case !s.pos.Known():
		v.Knowledge = knowledge.Unknown
	case s.pos.Lost > 0:
		v.Knowledge = knowledge.Partial
	case s.denied >= manyDenied && v.Lag > 0:
		v.Knowledge, v.Reason = knowledge.Approximate, "other members have more events, but none could send a snapshot"
		if s.tooLarge > 0 {
			v.Reason = "its snapshot exceeds the size limit"
		}
	case s.pend.len() > 0 || s.load != nil || v.Lag > 0 && l.late(s):
		v.Knowledge = knowledge.CatchingUp
	case !s.reading && l.readersQuiet(s):
		v.Knowledge = knowledge.CatchingUp
	default:
		v.Knowledge = knowledge.Exact
	}
	return v
}

// readersQuiet reports whether the publisher of s is quiet, so that changes may be missing here that no
// claim shows yet. The publisher is the first of the members that claim to read.
func (l *Log) readersQuiet(s *source) bool {
	if !l.g.AnyQuiet() {
		return false
	}
	var first *group.Peer
	for _, p := range l.g.Peers {
		if p.Up && l.of(p).claims[s.slot].reading && (first == nil || l.precedes(p, first, s)) {
			first = p
		}
	}
	return first != nil && first.Quiet
}

// word summarizes all peers' claims about a source. It is cached: there is one claim per peer, and
// every source is viewed several times a second.
type word struct {
	made                      uint64 // value of Log.regrouped when computed; 0 if it must be recomputed
	inc                       uint64 // of the source at that time
	far                       uint64 // position of the furthest peer
	reader                    string // as in SourceView, like the next ones
	followed, kept, unclaimed bool
}

func (l *Log) wordOf(s *source) *word {
	w := &s.word
	if w.made == l.regrouped && w.inc == s.pos.Inc {
		return w
	}
	*w = word{made: l.regrouped, inc: s.pos.Inc, unclaimed: len(l.g.Peers) > 0}
	if s.reading {
		w.reader = l.g.Opt.Self.ID
	}
	for _, p := range l.g.Peers {
		h := &l.of(p).claims[s.slot]
		if w.unclaimed = w.unclaimed && p.Up && l.of(p).full && !h.pos.Known(); !p.Up {
			continue
		}
		if h.pos.Inc == s.pos.Inc {
			w.far = max(w.far, h.pos.Next)
		}
		w.followed = w.followed || h.reading
		w.kept = w.kept || h.reading && !p.Leaving
		if h.reading && (w.reader == "" || (w.reader == l.g.Opt.Self.ID && l.before(p, s))) {
			w.reader = p.ID
		}
	}
	return w
}

// claimed updates the word for a changed claim of p. Usually the new position is further.
func (w *word) claimed(p *group.Peer, was, now Position) {
	w.far = max(w.far, now.Next)
	if !p.Up || was.Inc != now.Inc || now.Inc != w.inc || now.Next < was.Next {
		w.made = 0
	}
}

// late reports whether a peer is ahead by more than the data in transit. That holds if the
// beginning is not known yet, if for too long nothing has arrived or too little, or after a peer was quiet:
// its content may then have been old for longer than its claims show.
func (l *Log) late(s *source) bool {
	return l.g.LatelyQuiet() || s.pos.Next == 0 || s.ahead > 0 && l.g.Now-s.ahead > l.g.Opt.Digest || s.behind > 0 && l.g.Now-s.behind > l.g.Opt.GapDelay
}

// Version returns the version of the log's encoding.
func (l *Log) Version() uint64 { return l.version }

// Name returns the log's name.
func (l *Log) Name() string { return l.name }

// Mesh reports whether every member reads every source.
func (l *Log) Mesh() bool { return l.mesh }

// PeerLogView compares a peer's state of a log with ours, based on its last claims.
type PeerLogView struct {
	Name    string
	Reading int    // sources that it claims to read
	Behind  uint64 // sources for which it reports missing data
	Differ  int    // sources with another digest at the same position
}

// Compare compares p's claims with the state here.
func (l *Log) Compare(p *group.Peer) PeerLogView {
	l.collect()
	pl := l.of(p)
	return PeerLogView{Name: l.name, Behind: pl.lacks, Reading: pl.reading, Differ: pl.differ}
}

// compare updates the set of peers whose content of s differs from ours at their claimed position.
// Moving on changes it for peers that are ahead, and for those whose position the ring drops. s is
// locked.
func (l *Log) compare(s *source) {
	at := s.compared
	s.compared = Position{Inc: s.pos.Inc, Next: s.pos.Next}
	if at == s.compared || at.Inc == s.pos.Inc && s.furthest <= at.Next && s.differing == 0 {
		return
	}
	s.furthest = 0
	for _, p := range l.g.Peers {
		l.compareTo(l.of(p), s)
	}
}

// judge is compare after a new claim from p.
func (l *Log) judge(p *group.Peer, s *source) {
	l.compare(s)
	l.compareTo(l.of(p), s)
}

// compareTo is compare for one peer's claim.
func (l *Log) compareTo(pl *peerLog, s *source) {
	h := &pl.claims[s.slot]
	differs := false
	if h.hasDigest && h.pos.Inc == s.pos.Inc {
		s.furthest = max(s.furthest, h.pos.Next)
		mine, ok := s.digest, h.pos.Next == s.pos.Next
		if !ok {
			mine, ok = s.ring.digestAt(h.pos.Next)
		}
		differs = ok && h.pos.Known() && !h.holds(mine)
	}
	if differs != h.differs {
		h.differs = differs
		pl.differ += step(differs)
		s.differing += step(differs)
	}
}

func step(up bool) int {
	if up {
		return 1
	}
	return -1
}
