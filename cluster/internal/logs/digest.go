package logs

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// Claims about sources are sent by exception. A claim is made when something changed that deltas do
// not carry, and it reaches every peer: frames are numbered (numbers.go).
//
// To let peers compare content, the publisher of a source adds a check of its content to its
// deltas, at most five times per Options.FullDigest. Instead it sends a claim, once per two of
// them, where a check is not possible: some of the source was lost, another member reads it too, or
// an older member would not see the check.

// claimsReading reports whether peers may rely on this member to read s: it reads, and nothing is
// missing between its position and the stream's.
func (s *source) claimsReading() bool {
	return s.reading && s.pend.len() == 0 && s.load == nil
}

func (s *source) claim() group.Claim {
	return group.Claim{Source: []byte(s.name), Pos: s.pos, Digest: s.digest, Reading: s.announced}
}

// announce queues a claim about s for all peers.
func (l *Log) announce(s *source) {
	if !s.claimQueued {
		s.claimQueued = true
		l.announcing = append(l.announcing, s)
		l.nextDigest = min(l.nextDigest, max(l.g.Now, l.lastDigest+l.g.Opt.Digest))
	}
}

// exceptions queues a claim if something of s changed that peers cannot see in its deltas. s is
// locked.
func (l *Log) exceptions(s *source) {
	// A follower adopts a new incarnation and need not announce it.
	begun := s.pos.Inc != s.lastClaim.Inc && (s.reading || !l.opt.Owned || s.pos.Lost > 0)
	if begun || (s.pos.Lost != s.lastClaim.Lost && s.pos.Inc == s.lastClaim.Inc) || s.claimsReading() != s.announced {
		l.announce(s)
	}
}

// sendDigests sends the queued claims to all peers. It sends waiting deltas first: if claims
// overtook them, they would look lost.
func (l *Log) sendDigests() {
	if len(l.pushing) > 0 {
		l.flush()
	}
	l.lastDigest, l.nextDigest = l.g.Now, group.Never
	m := group.Digests{Name: []byte(l.name), Version: l.version}
	var told []*source
	telling := l.announcing
	l.announcing = nil
	for _, s := range telling {
		l.enter(s)
		was := s.announced
		if s.announced = s.claimsReading(); s.pos.Known() || s.announced != was {
			if s.lastClaim.Inc != s.pos.Inc {
				s.begunAt = l.g.Now
			}
			s.lastClaim, s.lastClaimAt = s.pos, l.g.Now
			m.Claims = append(m.Claims, s.claim())
			told = append(told, s)
		}
		s.claimQueued = false // not earlier: a claim made here would look unsent
		l.leave(s)
	}
	if len(m.Claims) > 0 {
		m.Number = l.number(nil, told)
		l.g.Broadcast(group.Live, l.idx, l.digestFrame(&m))
	}
}

// checksPerAudit is the most checks of a source per Options.FullDigest. A check takes four bytes. A
// source that changed soon after its last check needs a claim instead, which is a frame to every
// peer.
const checksPerAudit = 5

// checkDue reports whether the next broadcast of deltas should carry a check of s. s is locked.
func (l *Log) checkDue(s *source) bool {
	last := s.push[len(s.push)-1].Last
	if s.pos.Lost > 0 || last+1 != s.pos.Next || s.lastClaim.Inc != s.pos.Inc || s.lastClaim.Lost > 0 || l.g.Now-s.lastClaimAt < l.g.Opt.FullDigest/checksPerAudit {
		return false
	}
	for _, p := range l.g.Peers {
		if p.Up && p.Minor < group.MinorChecks {
			return false
		}
	}
	return true
}

// audit claims the sources that this member publishes and that changed since the last audit.
// Sources with losses, which may differ between members, are claimed twice as often.
func (l *Log) audit() {
	l.nextAudit = group.Never
	for _, s := range l.order {
		s.lock()
		moved, lossy := s.pos != s.lastClaim, s.pos.Lost > 0
		s.unlock()
		switch {
		case !moved || !l.publishes(s):
		case lossy || l.g.Now-s.lastClaimAt > l.g.Opt.FullDigest*3/2:
			l.announce(s)
		default:
			l.nextAudit = l.g.Now + l.g.Opt.FullDigest
		}
	}
}

// sendFullDigests sends a full digest to each peer that needs one, and periodically to peers that
// do not number frames.
func (l *Log) sendFullDigests() {
	if len(l.pushing) > 0 && l.g.Now >= l.nextFull() {
		l.flush()
	}
	var m *group.Digests
	for _, p := range l.g.Peers {
		pl := l.of(p)
		if !p.Up || l.g.Now < l.fullAt(p) {
			continue
		}
		if m == nil {
			m = l.fullDigest()
		}
		pl.sentFull, pl.wantsFull = max(l.g.Now, 1), false
		m.Covers = group.Numbers{All: l.sentAll, One: pl.sentOne}
		l.g.Send(p, group.Live, l.idx, l.digestFrame(m))
	}
}

// digestFrame encodes the current claims.
func (l *Log) digestFrame(m *group.Digests) []byte {
	l.stamp++
	m.Stamp = l.stamp
	return m.Append(l.g.Frame(group.KindDigest))
}

func (l *Log) fullDigest() *group.Digests {
	m := &group.Digests{Name: []byte(l.name), Version: l.version, Full: true}
	for _, s := range l.order {
		s.lock()
		if s.pos.Known() || s.announced {
			m.Claims = append(m.Claims, s.claim())
		}
		s.unlock()
	}
	return m
}

// fullAt returns when p is due a full digest.
func (l *Log) fullAt(p *group.Peer) time.Duration {
	pl := l.of(p)
	switch {
	case pl.sentFull == 0:
		return 0
	case pl.wantsFull:
		return pl.sentFull + l.g.Opt.Heartbeat/2
	case !numbers(p):
		return pl.sentFull + l.g.Opt.FullDigest
	}
	return group.Never
}

// nextFull returns when a full digest is due next.
func (l *Log) nextFull() time.Duration {
	d := group.Never
	for _, p := range l.g.Peers {
		if p.Up {
			d = min(d, l.fullAt(p))
		}
	}
	return d
}

// takeDigest handles p's claims about all or some sources.
func (l *Log) takeDigest(p *group.Peer, m *group.Digests) {
	pl := l.of(p)
	var named []bool // by slot
	if m.Full {
		named = make([]bool, len(l.slots))
	}
	for k := range m.Claims {
		cl := &m.Claims[k]
		s := l.sources[string(cl.Source)]
		if s == nil {
			l.g.Stats.UnknownSources++
			continue
		}
		if m.Full {
			named[s.slot] = true
		}
		l.enter(s)
		l.hear(p, s, cl, m.Stamp)
		l.leave(s)
	}
	l.came(p, m.Number)
	l.covered(p, m.Covers)
	if !m.Full {
		return
	}
	for slot, ok := range named {
		s, h := l.slots[slot], &pl.claims[slot]
		if ok || s == nil || m.Stamp < h.stamp {
			continue
		}
		s.word = word{}
		if h.reading {
			l.reassign(s)
		}
		pl.unclaim(s)
		h.stamp = m.Stamp
	}
	first := !pl.full
	pl.full, pl.refresh = true, false
	if first {
		l.regrouped++
		l.reconsider(p)
	}
	if pl.target == nil && l.g.Phase != group.Settled {
		pl.target = make([]Position, len(l.slots))
		for slot := range pl.target {
			pl.target[slot] = pl.claims[slot].pos
		}
	}
}

// hear stores p's claim about s.
func (l *Log) hear(p *group.Peer, s *source, cl *group.Claim, stamp uint64) {
	h := &l.of(p).claims[s.slot]
	if stamp < h.stamp {
		return // a later claim was already received
	}
	h.stamp = stamp
	s.word.claimed(p, h.pos, cl.Pos)
	if cl.Reading != h.reading {
		l.of(p).reading += step(cl.Reading)
		s.word = word{}
		l.reassign(s)
		if s.reading {
			l.announceChanged(s) // p may have missed deltas that are not sent to readers
		}
	}
	h.pos, h.reading = cl.Pos, cl.Reading
	h.sum, h.hasDigest, h.folded = cl.Digest.Sum(), true, false
	if cl.Pos.Inc > s.pos.Inc {
		l.adopt(s, cl.Pos.Inc)
	}
	l.judge(p, s)
	l.weigh(p, s, h)
	if l.knowsBetter(s, h.pos) {
		l.announceChanged(s)
	}
}

// weigh acts on p's claim about s.
func (l *Log) weigh(p *group.Peer, s *source, h *heldClaim) {
	if l.lacks(p, s, h) != lackNothing {
		l.watchSource(s)
	} else if equal, ok := s.holds(h); ok && !equal {
		l.announce(s) // this member's content takes precedence, and p must be informed
	}
}

// holds compares the content at a claim's position with the claim. ok is false if that content is
// not known.
func (s *source) holds(h *heldClaim) (equal, ok bool) {
	if !h.hasDigest || h.pos.Inc != s.pos.Inc || h.pos.Lost != s.pos.Lost {
		return false, false
	}
	mine := s.digest
	if h.pos.Next != s.pos.Next {
		if mine, ok = s.ring.digestAt(h.pos.Next); !ok {
			return false, false
		}
	}
	return h.holds(mine), true
}

// announceChanged queues a claim about s if the position differs from the last claim.
func (l *Log) announceChanged(s *source) {
	if s.pos != s.lastClaim {
		l.announce(s)
	}
}

// knowsBetter reports whether this member has been ahead of a peer's claim for a while.
func (l *Log) knowsBetter(s *source, than Position) bool {
	if s.pos.Inc != than.Inc {
		return s.pos.Inc > than.Inc
	}
	return s.pos.Lost < than.Lost || (s.pos.Next > than.Next && l.g.Now-s.moved > l.g.Opt.Digest)
}

// lack is a deficit of this member that a peer's claim reveals.
type lack uint8

const (
	lackNothing lack = iota
	lackDeltas       // the peer is ahead
	lackLost         // the peer lost less
	lackEqual        // same position, different content, and the peer takes precedence
)

// lacks compares p's claim about s with the position and content here.
func (l *Log) lacks(p *group.Peer, s *source, h *heldClaim) lack {
	if !h.pos.Known() || h.pos.Inc != s.pos.Inc {
		return lackNothing
	}
	switch {
	case h.pos.Lost < s.pos.Lost && (l.bridges(s, h.pos.Next) || l.movedSince(p, h)):
		return lackLost
	case h.pos.Next > s.pos.Next:
		return lackDeltas
	case !group.Outranks(p.Hash, p.ID, l.g.SelfHash, l.g.Opt.Self.ID, s.hash):
		return lackNothing
	}
	equal, ok := s.holds(h)
	if ok && !equal {
		return lackEqual
	}
	if ok {
		s.differs, s.healAt = 0, 0
	}
	return lackNothing
}

// movedSince reports whether p is probably ahead of its claim. Peers claim again when they lose
// something, not when deltas advance them.
func (l *Log) movedSince(p *group.Peer, h *heldClaim) bool {
	return numbers(p) && l.of(p).full && h.stamp > 0
}

// bridges reports whether the deltas held here lead from position next of the current incarnation
// to the position of s.
func (l *Log) bridges(s *source, next uint64) bool {
	if next >= s.pos.Next {
		return true
	}
	_, ok := s.ring.from(next)
	return ok
}
