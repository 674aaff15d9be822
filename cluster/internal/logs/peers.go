package logs

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/window"
)

// peerLog holds a peer's claims about a log's sources.
type peerLog struct {
	full      bool   // a full digest arrived since it was up
	refresh   bool   // another one is needed
	received  bool   // a heartbeat arrived
	version   uint64 // of the log, from its heartbeats; 0 if they do not list it
	claims    []heldClaim
	target    []Position    // claims of its first full digest, which this member has to reach
	waits     int           // index of the source that CaughtUp found behind
	sentFull  time.Duration // when it was last sent a full digest
	wantsFull bool

	all, one window.Row      // its frames received
	missed   time.Duration   // when to request missing frames; 0 if none is missing
	wholeAt  time.Duration   // SentAt of the peer when none was missing last
	sentOne  uint64          // number of the last frame sent to it alone
	named    []uint64        // by slot: the last such frame that named the source; slots beyond the end are in none
	refused  map[int]refusal // by slot
	lacks    uint64          // number of sources for which it reports missing data
	reading  int             // number of sources it claims to read
	differ   int             // number of sources whose content differs

	behind uint64        // number of the last frame that a relay should have forwarded to it
	by     string        // ID of that relay
	direct group.Penalty // while on, frames are sent to it directly
	unfit  group.Penalty // while on, it is not used as a relay
}

// heldClaim is a peer's last claim about a source. There is one per source and peer, so rarely used
// fields are kept elsewhere.
type heldClaim struct {
	pos       Position
	stamp     uint64 // of the claim
	sum       uint64 // if hasDigest: Digest.Sum of its content, or Fold if only that is known
	hasDigest bool
	folded    bool
	differs   bool // from the content here
	reading   bool
}

// refusal records a peer's failure to provide a part of a source.
type refusal struct {
	until     time.Duration // do not ask before this: it could not help
	inc, gone uint64        // it has no deltas of incarnation inc before sequence number gone
}

// holds reports whether d is the digest in the peer's claim.
func (h *heldClaim) holds(d Digest) bool {
	if h.folded {
		return uint64(d.Fold()) == h.sum
	}
	return d.Sum() == h.sum
}

// lacksDeltas reports whether the peer is known not to have the deltas that follow our position.
func (pl *peerLog) lacksDeltas(s *source) bool {
	r := pl.refused[s.slot]
	return r.inc == s.pos.Inc && r.gone > s.pos.Next
}

// unclaim clears the peer's claim about s.
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

// namedSince reports whether a frame for the peer alone after number n named s.
func (pl *peerLog) namedSince(s *source, n uint64) bool {
	return s.slot < len(pl.named) && pl.named[s.slot] > n
}

// of returns p's state. It is valid until a peer is added.
func (l *Log) of(p *group.Peer) *peerLog { return &l.peers[p.Slot] }

// AddPeer adds p.
func (l *Log) AddPeer(p *group.Peer) {
	for len(l.peers) <= p.Slot {
		l.peers = append(l.peers, peerLog{})
	}
	l.peers[p.Slot] = peerLog{claims: make([]heldClaim, len(l.slots)), wantsFull: true, sentOne: l.maxOne, refused: map[int]refusal{}}
	l.redivide()
}

// PeerUp handles p becoming reachable. Its earlier claims may need action now.
func (l *Log) PeerUp(p *group.Peer) {
	l.redivide()
	l.reconsider(p)
}

// reconsider checks every source for data that p claimed and that is missing here. p does not
// repeat its claims.
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

// PeerDown handles p becoming unreachable. Its claims are dropped, and its pending loads move to
// another peer.
func (l *Log) PeerDown(p *group.Peer) {
	pl := l.of(p)
	pl.full, pl.wantsFull, pl.target, pl.named = false, true, nil, nil
	for _, s := range l.order {
		if pl.claims[s.slot].reading && !s.reading {
			// Its last deltas may have reached only some peers.
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

// redivide schedules a new assignment of sources and a check of every role.
func (l *Log) redivide() {
	l.undivided = true
	l.regrouped++
}

// Changed handles a change of the members or of the leaving members.
func (l *Log) Changed() { l.redivide() }

// SetStated sets the log version in p's heartbeats; 0 if they do not list the log.
func (l *Log) SetStated(p *group.Peer, version uint64) {
	pl := l.of(p)
	if (pl.version > 0) != (version > 0) {
		l.redivide()
	}
	pl.received, pl.version = true, version
}

// Common returns the lowest log version among all members. A member not heard from yet counts as
// the lowest.
func (l *Log) Common() uint64 {
	v := l.version
	for _, p := range l.g.Peers {
		if pl := l.of(p); !pl.received || pl.version > 0 {
			v = min(v, max(1, pl.version))
		}
	}
	return v
}

// reads reports whether p can read a payload.
func (l *Log) reads(p *group.Peer, payload []byte) bool {
	return l.opt.Needs == nil || l.opt.Needs(payload) <= max(1, l.of(p).version)
}

// NeedsDigest reports whether a full digest from p is needed.
func (l *Log) NeedsDigest(p *group.Peer) bool {
	pl := l.of(p)
	return pl.version > 0 && (!pl.full || pl.refresh)
}

// SendFullDigest schedules a full digest for p.
func (l *Log) SendFullDigest(p *group.Peer) { l.of(p).wantsFull = true }

// Named reports whether SetSources was called.
func (l *Log) Named() bool { return l.named }

// CaughtUp reports whether every source has reached the position that p had when it came up. Deltas
// that p has lost since may be lost here too.
func (l *Log) CaughtUp(p *group.Peer) bool {
	pl := l.of(p)
	if pl.version == 0 {
		return true
	}
	if !pl.full {
		return false
	}
	for range l.order { // start with the source that was behind at the last call
		pl.waits %= len(l.order)
		if !l.reached(pl, l.order[pl.waits]) {
			return false
		}
		pl.waits++
	}
	return true
}

// Settled drops the data for CaughtUp, which is not called any more.
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
