package logs

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/window"
)

// peerLog is what a peer said of a log's sources.
type peerLog struct {
	full      bool   // a full digest came since it was up
	refresh   bool   // another one is wanted
	heard     bool   // a heartbeat came
	version   uint64 // of the log, as its heartbeats say; 0: they do not name it
	claims    []heldClaim
	target    []Position    // its claims at the first full digest, to be caught up with
	waits     int           // where in the order is the source that kept it from being caught up with
	sentFull  time.Duration // when it was last sent a full digest
	wantsFull bool

	all, one window.Row      // of its frames
	missed   time.Duration   // when to ask for frames that did not come; 0 when none is missed
	sentOne  uint64          // number of the last frame for it alone
	named    []uint64        // by slot: of the last of these that named the source; those beyond its end in none
	refused  map[int]refusal // by slot
	lacks    uint64          // of how many sources it says that it misses something
	reading  int             // of how many it claims to read
	differ   int             // of how many its content differs

	behind uint64        // number of the last frame that another member was to pass on to it
	by     string        // the ID of that member
	direct group.Penalty // it is not sent to by way of others
	unfit  group.Penalty // it does not pass on
}

// heldClaim is a claim by source slot. There is one for each source of each peer, so what few
// of them have is elsewhere.
type heldClaim struct {
	pos       Position
	stamp     uint64 // of the claim
	sum       uint64 // of what it holds there, if hasDigest: Digest.Sum, or Fold if that is all that was told
	hasDigest bool
	folded    bool
	differs   bool // from what is known here
	reading   bool
}

// refusal is what a peer could not give of a source.
type refusal struct {
	until     time.Duration // not asked before: it could not help
	inc, gone uint64        // deltas of this incarnation before this sequence number are not to be had there
}

// holds reports whether d is what the peer holds at its position, as far as it said.
func (h *heldClaim) holds(d Digest) bool {
	if h.folded {
		return uint64(d.Fold()) == h.sum
	}
	return d.Sum() == h.sum
}

// lacksDeltas reports whether what comes after ours is not to be had from the peer as deltas.
func (pl *peerLog) lacksDeltas(s *source) bool {
	r := pl.refused[s.slot]
	return r.inc == s.pos.Inc && r.gone > s.pos.Next
}

// unclaim forgets what the peer claimed of s.
func (pl *peerLog) unclaim(s *source) {
	h := &pl.claims[s.slot]
	if h.reading {
		pl.reading--
	}
	if h.differs {
		pl.differ--
		s.differing--
	}
	*h = heldClaim{}
	delete(pl.refused, s.slot)
}

// namedSince reports whether a frame for the peer alone after a number named s.
func (pl *peerLog) namedSince(s *source, n uint64) bool {
	return s.slot < len(pl.named) && pl.named[s.slot] > n
}

// of returns what p said. It stays valid until a peer is added.
func (l *Log) of(p *group.Peer) *peerLog { return &l.peers[p.Slot] }

// AddPeer begins to listen to p.
func (l *Log) AddPeer(p *group.Peer) {
	for len(l.peers) <= p.Slot {
		l.peers = append(l.peers, peerLog{})
	}
	l.peers[p.Slot] = peerLog{claims: make([]heldClaim, len(l.slots)), wantsFull: true, sentOne: l.maxOne, refused: map[int]refusal{}}
	l.redivide()
}

// PeerUp is told that p can be reached. What it claimed before could not be asked for.
func (l *Log) PeerUp(p *group.Peer) {
	l.redivide()
	l.reconsider(p)
}

// reconsider looks at every source that something is missing of by what p claimed: it
// claims once.
func (l *Log) reconsider(p *group.Peer) {
	for _, s := range l.order {
		h := &l.of(p).claims[s.slot]
		if !h.pos.Known() {
			continue
		}
		l.enter(s)
		if l.lacks(p, s, h) != lackNothing {
			l.watchSource(s)
		}
		l.leave(s)
	}
}

// PeerDown is told that p cannot be reached any more: what it said is
// forgotten, and what was being fetched from it is fetched elsewhere.
func (l *Log) PeerDown(p *group.Peer) {
	pl := l.of(p)
	pl.full, pl.wantsFull, pl.target, pl.named = false, true, nil, nil
	for _, s := range l.order {
		if pl.claims[s.slot].reading && !s.reading {
			// Its last deltas may have reached some and not others.
			l.enter(s)
			l.announceChanged(s)
			l.leave(s)
		}
	}
	for _, s := range l.order {
		pl.unclaim(s)
		if s.load != nil && s.load.p == p {
			l.enter(s)
			l.endLoad(s)
			l.leave(s)
		}
	}
	l.redivide()
}

// redivide has the sources divided anew, and every role looked at.
func (l *Log) redivide() {
	l.undivided = true
	l.regrouped++
}

// Changed is told that the members, or who leaves, changed.
func (l *Log) Changed() { l.redivide() }

// SetStated says of what version the log is in p's heartbeats; 0: they do not name
// it.
func (l *Log) SetStated(p *group.Peer, version uint64) {
	pl := l.of(p)
	if (pl.version > 0) != (version > 0) {
		l.redivide()
	}
	pl.heard, pl.version = true, version
}

// Common returns the smallest version of the log that a member states, this one
// included. Of members that have not been heard yet the worst is assumed.
func (l *Log) Common() uint64 {
	v := l.version
	for _, p := range l.g.Peers {
		if pl := l.of(p); !pl.heard || pl.version > 0 {
			v = min(v, max(1, pl.version))
		}
	}
	return v
}

// reads reports whether p can read a payload.
func (l *Log) reads(p *group.Peer, payload []byte) bool {
	return l.opt.Needs == nil || l.opt.Needs(payload) <= max(1, l.of(p).version)
}

// WantsDigest reports whether a full digest of p is missed.
func (l *Log) WantsDigest(p *group.Peer) bool {
	pl := l.of(p)
	return pl.version > 0 && (!pl.full || pl.refresh)
}

// TellAll has p sent a full digest.
func (l *Log) TellAll(p *group.Peer) { l.of(p).wantsFull = true }

// Named reports whether SetSources was called.
func (l *Log) Named() bool { return l.named }

// CaughtUp reports whether every source is known as far as p knew it when it
// came up. What p has lost since may be lost here too.
func (l *Log) CaughtUp(p *group.Peer) bool {
	pl := l.of(p)
	if pl.version == 0 {
		return true
	}
	if !pl.full {
		return false
	}
	for range l.order { // beginning with the one that was not known far enough when last asked
		pl.waits %= len(l.order)
		if !l.reached(pl, l.order[pl.waits]) {
			return false
		}
		pl.waits++
	}
	return true
}

// Settled forgets what CaughtUp asks for, which nobody does from then on.
func (l *Log) Settled() {
	for _, p := range l.g.Peers {
		l.of(p).target = nil
	}
}

func (l *Log) reached(pl *peerLog, s *source) bool {
	if s.slot >= len(pl.target) {
		return true
	}
	t := pl.target[s.slot]
	t.Lost = max(t.Lost, pl.claims[s.slot].pos.Lost)
	s.lock()
	defer s.unlock()
	return t.Inc < s.pos.Inc || t.Inc == s.pos.Inc && t.Next <= s.pos.Next && t.Lost >= s.pos.Lost
}
