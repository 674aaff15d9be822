package logs

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// What members tell each other of sources beyond deltas is told by exception. A claim is made
// when something changed that deltas do not show, and reaches everybody: frames are numbered
// (numbers.go). So that contents are compared, who publishes a source adds a check of what it
// holds to its deltas, five times per Options.FullDigest at most. It claims the same once per two of them where
// that could not be done: something of the source was lost, somebody reads it too, or an older
// member would not see it.

// claimsReading reports whether this member may be relied on to read s: it does, and
// nothing is missing between what it knows and what it reads.
func (s *source) claimsReading() bool {
	return s.reading && s.pend.len() == 0 && s.load == nil
}

func (s *source) claim() group.Claim {
	return group.Claim{Source: []byte(s.name), Pos: s.pos, Digest: s.digest, Reading: s.announced}
}

// announce has everybody told of s, together with what else there is to tell.
func (l *Log) announce(s *source) {
	if !s.tell {
		s.tell = true
		l.telling = append(l.telling, s)
		l.nextDigest = min(l.nextDigest, max(l.g.Now, l.lastDigest+l.g.Opt.Digest))
	}
}

// exceptions looks whether something of s changed that others would not see in its deltas.
// s is locked.
func (l *Log) exceptions(s *source) {
	// Whoever follows adopts a new incarnation, and has no need to say so.
	begun := s.pos.Inc != s.told.Inc && (s.reading || !l.opt.Owned || s.pos.Lost > 0)
	if begun || (s.pos.Lost != s.told.Lost && s.pos.Inc == s.told.Inc) || s.claimsReading() != s.announced {
		l.announce(s)
	}
}

// sendDigests tells everybody what there is to tell, after the deltas that wait: claims that
// overtook them would make them look lost.
func (l *Log) sendDigests() {
	if len(l.pushing) > 0 {
		l.flush()
	}
	l.lastDigest, l.nextDigest = l.g.Now, group.Never
	m := group.Digests{Name: []byte(l.name), Version: l.version}
	var told []*source
	telling := l.telling
	l.telling = nil
	for _, s := range telling {
		l.enter(s)
		was := s.announced
		if s.announced = s.claimsReading(); s.pos.Known() || s.announced != was {
			if s.told.Inc != s.pos.Inc {
				s.begunAt = l.g.Now
			}
			s.told, s.toldAt = s.pos, l.g.Now
			m.Claims = append(m.Claims, s.claim())
			told = append(told, s)
		}
		s.tell = false // not before: what is claimed here would look untold
		l.leave(s)
	}
	if len(m.Claims) > 0 {
		m.Number = l.number(nil, told)
		l.g.Broadcast(group.Live, l.idx, l.digestFrame(&m))
	}
}

// checksPerAudit is how many checks of a source may come in an Options.FullDigest: a check takes four
// bytes, and the claim that a source needs which moved soon after its last check a frame to everybody.
const checksPerAudit = 5

// checkDue reports whether what s holds is to be added to its deltas, which go to everybody.
// s is locked.
func (l *Log) checkDue(s *source) bool {
	last := s.push[len(s.push)-1].Last
	if s.pos.Lost > 0 || last+1 != s.pos.Next || s.told.Inc != s.pos.Inc || s.told.Lost > 0 || l.g.Now-s.toldAt < l.g.Opt.FullDigest/checksPerAudit {
		return false
	}
	for _, p := range l.g.Peers {
		if p.Up && p.Minor < group.MinorChecks {
			return false
		}
	}
	return true
}

// audit claims the sources that this member publishes and that moved since it did so last:
// those of which something was lost, which may be another thing elsewhere, twice as often.
func (l *Log) audit() {
	l.nextAudit = group.Never
	for _, s := range l.order {
		s.lock()
		moved, lossy := s.pos != s.told, s.pos.Lost > 0
		s.unlock()
		switch {
		case !moved || !l.publishes(s):
		case lossy || l.g.Now-s.toldAt > l.g.Opt.FullDigest*3/2:
			l.announce(s)
		default:
			l.nextAudit = l.g.Now + l.g.Opt.FullDigest
		}
	}
}

// sendFullDigests tells everything to the peers that miss it, and once in a while to those
// that number nothing.
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

// digestFrame encodes claims of this moment.
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

// fullAt returns when p is to be told everything.
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

// takeDigest takes what p says of all or some sources.
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
			l.g.Stats.StrangeSources++
			continue
		}
		if m.Full {
			named[s.slot] = true
		}
		l.enter(s)
		l.hear(p, s, cl, m.Stamp)
		l.leave(s)
	}
	l.of(p).came(m.Number)
	l.of(p).covered(m.Covers)
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

// hear takes p's claim about s.
func (l *Log) hear(p *group.Peer, s *source, cl *group.Claim, stamp uint64) {
	h := &l.of(p).claims[s.slot]
	if stamp < h.stamp {
		return // overtaken
	}
	h.stamp = stamp
	s.word.claimed(p, h.pos, cl.Pos)
	if cl.Reading != h.reading {
		l.of(p).reading += step(cl.Reading)
		s.word = word{}
		l.reassign(s)
		if s.reading {
			l.announceChanged(s) // p may have missed what was not sent to a reader
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

// weigh has done what follows from what p claims of s.
func (l *Log) weigh(p *group.Peer, s *source, h *heldClaim) {
	if l.lacks(p, s, h) != lackNothing {
		l.watchSource(s)
	} else if equal, ok := s.holds(h); ok && !equal {
		l.announce(s) // this member's word counts more, and p has to hear it
	}
}

// holds compares the content at the position of a claim with that of the claim; !ok when
// that is not known.
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

// announceChanged has everybody told of s if they were told something else.
func (l *Log) announceChanged(s *source) {
	if s.pos != s.told {
		l.announce(s)
	}
}

// knowsBetter reports whether this member knows more than what a peer claims, and did so
// for a while.
func (l *Log) knowsBetter(s *source, than Position) bool {
	if s.pos.Inc != than.Inc {
		return s.pos.Inc > than.Inc
	}
	return s.pos.Lost < than.Lost || (s.pos.Next > than.Next && l.g.Now-s.moved > l.g.Opt.Digest)
}

// lack is what a peer's claim says is missing or wrong here.
type lack uint8

const (
	lackNothing lack = iota
	lackDeltas       // the peer is further
	lackLost         // the peer lost less
	lackEqual        // same position, other content, and the peer's word counts more
)

// lacks compares what p claims of s with what is known.
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

// movedSince reports whether p is likely to be further than it claimed: it claims again when
// it lost something, not when deltas brought it on.
func (l *Log) movedSince(p *group.Peer, h *heldClaim) bool {
	return numbers(p) && l.of(p).full && h.stamp > 0
}

// bridges reports whether knowledge at position next of the current
// incarnation can be brought to where s is by the deltas held here.
func (l *Log) bridges(s *source, next uint64) bool {
	if next >= s.pos.Next {
		return true
	}
	_, ok := s.ring.from(next)
	return ok
}
