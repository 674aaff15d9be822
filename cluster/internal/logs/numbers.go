package logs

import (
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// Frames with positions of sources (deltas, claims, tips) are numbered per log. Broadcast frames
// form one sequence, and frames for one peer another. Heartbeats carry the last numbers, so a peer
// detects a missed frame within one heartbeat and requests claims for its content. Nothing is
// repeated on suspicion.

// numbers reports whether p supports frame numbers. It returns true before p's first frame.
func numbers(p *group.Peer) bool {
	return p.Minor >= group.MinorNumbers || p.LastReceived == 0 && p.Minor == 0
}

// number returns the number of the next frame to p, or of the next broadcast if p is nil. named are
// the sources in it.
func (l *Log) number(p *group.Peer, named []*source) group.Number {
	if p == nil {
		l.sentAll++
		for _, s := range named {
			s.sentAll = l.sentAll
		}
		return group.Number{N: l.sentAll}
	}
	pl := l.of(p)
	pl.sentOne++
	l.maxOne = max(l.maxOne, pl.sentOne)
	for _, s := range named {
		pl.named = append(pl.named, make([]uint64, max(0, s.slot+1-len(pl.named)))...)
		pl.named[s.slot] = pl.sentOne
	}
	return group.Number{N: pl.sentOne, One: true}
}

func (l *Log) came(p *group.Peer, n group.Number) {
	pl := l.of(p)
	switch {
	case n.N == 0:
		return
	case n.One:
		pl.one.MarkReceived(n.N)
	default:
		pl.all.MarkReceived(n.N)
	}
	pl.complete(p)
}

func (l *Log) covered(p *group.Peer, n group.Numbers) {
	pl := l.of(p)
	pl.all.MarkCovered(n.All)
	pl.one.MarkCovered(n.One)
	pl.complete(p)
}

// complete updates wholeAt.
func (pl *peerLog) complete(p *group.Peer) {
	if !pl.all.HasGaps() && !pl.one.HasGaps() {
		pl.wholeAt = p.SentAt
	}
}

// WholeAt returns when p sent its last heartbeat before which no frame of p is missing.
func (l *Log) WholeAt(p *group.Peer) time.Duration { return l.of(p).wholeAt }

// SetSent handles the frame numbers in p's heartbeat.
func (l *Log) SetSent(p *group.Peer, n group.Numbers, lacks uint64) {
	pl := l.of(p)
	pl.all.Sent(n.All)
	pl.one.Sent(n.One)
	pl.lacks = lacks
	pl.complete(p)
}

// Sent returns the last frame numbers for p, and the number of sources with missing data here.
func (l *Log) Sent(p *group.Peer) (group.Numbers, uint64) {
	return group.Numbers{All: l.sentAll, One: l.of(p).sentOne}, uint64(len(l.checks))
}

// missedAt returns when to request p's missing frames.
func (l *Log) missedAt(p *group.Peer) time.Duration {
	pl := l.of(p)
	switch {
	case !p.Up || !pl.full || (!pl.all.HasGaps() && !pl.one.HasGaps()):
		pl.missed = 0
		return group.Never
	case pl.missed == 0: // it may be in transit
		pl.missed = max(l.g.Now, 1) + l.g.Opt.GapDelay
	}
	return pl.missed
}

// nextMissed returns when askMissed is due next.
func (l *Log) nextMissed() time.Duration {
	at := group.Never
	for _, p := range l.g.Peers {
		at = min(at, l.missedAt(p))
	}
	return at
}

func (l *Log) askMissed() {
	for _, p := range l.g.Peers {
		if l.g.Now < l.missedAt(p) {
			continue
		}
		pl := l.of(p)
		pl.missed = l.g.Now + max(l.g.Opt.AskTimeout/2, min(2*p.RTT.Smoothed, maxAsk))
		m := group.Missed{Name: []byte(l.name), Have: group.Numbers{All: pl.all.Have(), One: pl.one.Have()}}
		l.g.Send(p, group.Live, l.idx, m.Append(l.g.Frame(group.KindMissed)))
	}
}

// takeMissed sends p claims for the content of frames that it missed.
func (l *Log) takeMissed(p *group.Peer, m *group.Missed) {
	if !p.Link {
		return
	}
	l.flush() // the sources may have moved since
	pl := l.of(p)
	if m.Have.All < pl.behind {
		l.suspect(p)
	}
	d := group.Digests{
		Name: []byte(l.name), Version: l.version, Covers: group.Numbers{All: l.sentAll, One: pl.sentOne},
	}
	for _, s := range l.order {
		if s.sentAll > m.Have.All || pl.namedSince(s, m.Have.One) {
			s.lock()
			d.Claims = append(d.Claims, s.claim())
			s.unlock()
		}
	}
	l.g.Send(p, group.Live, l.idx, l.digestFrame(&d))
}

// sendTips sends the positions of published sources to peers that read them too. A peer that has
// fallen behind fetches the missing deltas.
func (l *Log) sendTips() {
	l.nextTips = group.Never
	var all []*source
	per := make([][]*source, len(l.g.Peers))
	for _, s := range l.order {
		if !s.tip {
			continue
		}
		s.tip = false
		readers := 0
		for _, p := range l.g.Peers {
			if l.tipped(p, s) {
				readers++
			}
		}
		if readers == len(l.g.Peers) {
			all = append(all, s)
			continue
		}
		for i, p := range l.g.Peers {
			if l.tipped(p, s) {
				per[i] = append(per[i], s)
			}
		}
	}
	l.sendTipsOf(all, nil)
	for i, p := range l.g.Peers {
		l.sendTipsOf(per[i], p)
	}
}

// tipped reports whether p reads s and can resolve its nick.
func (l *Log) tipped(p *group.Peer, s *source) bool {
	return p.Up && numbers(p) && l.of(p).claims[s.slot].reading && l.hasNick(p, s, s.lastClaim.Inc)
}

// tipsInFrame bounds the tips in one frame.
const tipsInFrame = 4096

func (l *Log) sendTipsOf(sources []*source, p *group.Peer) {
	for part := range slices.Chunk(sources, tipsInFrame) {
		m := group.Tips{Name: []byte(l.name), Version: l.version, Number: l.number(p, part)}
		for _, s := range part {
			s.lock()
			t := group.Tip{Next: s.pos.Next}
			copy(t.Nick[:], s.nick(s.pos.Inc)[1:])
			s.unlock()
			m.Tips = append(m.Tips, t)
		}
		if b := m.Append(l.g.Frame(group.KindTips)); p == nil {
			l.g.Broadcast(group.Live, l.idx, b)
		} else {
			l.g.Send(p, group.Live, l.idx, b)
		}
	}
}

func (l *Log) takeTips(p *group.Peer, m *group.Tips) {
	l.came(p, m.Number)
	t := l.table.Load()
	for i := range m.Tips {
		tip := &m.Tips[i]
		g := group.DeltaRun{Source: append([]byte{0}, tip.Nick[:]...)}
		if s := t.find(&g); s != nil {
			l.takeTip(p, s, &g, tip.Next)
		}
	}
}

func (l *Log) takeTip(p *group.Peer, s *source, g *group.DeltaRun, next uint64) {
	l.enter(s)
	defer l.leave(s)
	h := &l.of(p).claims[s.slot]
	if !s.completes(g) || h.pos.Inc != g.Inc || next <= h.pos.Next {
		return
	}
	s.word.claimed(p, h.pos, Position{Inc: h.pos.Inc, Next: next, Lost: h.pos.Lost})
	h.pos.Next, h.hasDigest = next, false
	l.judge(p, s)
	if l.lacks(p, s, h) != lackNothing {
		l.watchSource(s)
	}
}
