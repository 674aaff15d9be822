package logs

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/wire"
)

// tellTimes is how many digests name a source after a change, since any of
// them may be lost.
const tellTimes = 3

// claimsReading reports whether this member may be relied on to read s: it does, and
// nothing is missing between what it knows and what it reads.
func (s *source) claimsReading() bool {
	return s.reading && s.pend.len() == 0 && s.load == nil
}

func (s *source) claim() wire.Claim {
	return wire.Claim{Source: []byte(s.name), Pos: s.pos, Digest: s.digest, Reading: s.announced}
}

// sendDigests tells everybody the sources that changed.
func (l *Log) sendDigests() {
	l.nextDigest = l.g.Now + l.g.Opt.Digest
	m := wire.Digests{Name: []byte(l.name), Version: l.version}
	for _, s := range l.order {
		l.enter(s)
		if r := s.claimsReading(); r != s.announced {
			s.announced, s.tell = r, tellTimes
		}
		if s.tell > 0 {
			s.tell--
			m.Claims = append(m.Claims, s.claim())
		}
		l.leave(s)
	}
	if len(m.Claims) > 0 {
		l.g.Broadcast(group.Live, l.idx, m.Append(l.g.Frame(wire.KindDigest)))
	}
}

// sendFullDigests tells everything to the peers that miss it, and to all once
// in a while, so that lost digests are made good.
func (l *Log) sendFullDigests() {
	if len(l.pushing) > 0 && l.g.Now >= l.nextFull() {
		l.flush()
	}
	var b []byte
	for _, p := range l.g.Peers {
		pl := l.of(p)
		since := l.g.Now - pl.sentFull
		due := pl.sentFull == 0 || since >= l.g.Opt.FullDigest || (pl.wantsFull && since >= l.g.Opt.Heartbeat/2)
		if !p.Up || !due {
			continue
		}
		if b == nil {
			b = l.fullDigest()
		}
		pl.sentFull, pl.wantsFull = max(l.g.Now, 1), false
		l.g.Send(p, group.Live, l.idx, b)
	}
}

func (l *Log) fullDigest() []byte {
	m := wire.Digests{Name: []byte(l.name), Version: l.version, Full: true}
	for _, s := range l.order {
		s.lock()
		if s.pos.Known() || s.announced {
			m.Claims = append(m.Claims, s.claim())
		}
		s.unlock()
	}
	return m.Append(l.g.Frame(wire.KindDigest))
}

// nextFull returns when a full digest is due next.
func (l *Log) nextFull() time.Duration {
	d := group.Never
	for _, p := range l.g.Peers {
		pl := l.of(p)
		if !p.Up {
			continue
		}
		if pl.wantsFull {
			d = min(d, pl.sentFull+l.g.Opt.Heartbeat/2)
		} else {
			d = min(d, pl.sentFull+l.g.Opt.FullDigest)
		}
	}
	return d
}

// takeDigest takes what p says of all or some sources.
func (l *Log) takeDigest(p *group.Peer, m *wire.Digests) {
	pl := l.of(p)
	named := make([]bool, len(l.slots))
	for k := range m.Claims {
		cl := &m.Claims[k]
		s := l.sources[string(cl.Source)]
		if s == nil {
			l.g.Stats.StrangeSources++
			continue
		}
		named[s.slot] = true
		l.enter(s)
		l.hear(p, s, cl)
		l.leave(s)
	}
	if !m.Full {
		return
	}
	for slot, ok := range named {
		if !ok {
			pl.claims[slot] = heldClaim{}
		}
	}
	pl.full = true
	if pl.target == nil {
		pl.target = make([]Position, len(l.slots))
		for slot := range pl.target {
			pl.target[slot] = pl.claims[slot].pos
		}
	}
}

// hear takes p's claim about s.
func (l *Log) hear(p *group.Peer, s *source, cl *wire.Claim) {
	h := &l.of(p).claims[s.slot]
	if cl.Pos.Inc != h.pos.Inc {
		h.gone = 0
	}
	if cl.Reading != h.reading {
		l.rolesDirty = true
	}
	h.pos, h.digest, h.hasDigest, h.reading = cl.Pos, cl.Digest, true, cl.Reading
	if cl.Pos.Inc > s.pos.Inc {
		l.adopt(s, cl.Pos.Inc)
	}
	if l.lacks(p, s, h) != lackNothing {
		l.watchSource(s)
	}
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
	case h.pos.Lost < s.pos.Lost && l.bridges(s, h.pos.Next):
		return lackLost
	case h.pos.Next > s.pos.Next:
		return lackDeltas
	case h.pos.Lost != s.pos.Lost || !h.hasDigest || !outranks(p.Hash, p.ID, l.g.SelfHash, l.g.Opt.Self.ID, s.hash):
		return lackNothing
	}
	mine, ok := s.digest, true
	if h.pos.Next != s.pos.Next {
		mine, ok = s.ring.digestAt(h.pos.Next)
	}
	if ok && mine != h.digest {
		return lackEqual
	}
	if ok {
		s.differs, s.healAt = 0, 0
	}
	return lackNothing
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
