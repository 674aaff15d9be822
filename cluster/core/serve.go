package core

import (
	"slices"
	"time"
)

// snap is a snapshot held for those who ask for its pages.
type snap struct {
	s      *source
	pos    Position
	digest Digest
	pages  [][]byte
	bytes  int
	made   time.Duration
	used   time.Duration
}

// A snapshot is handed to newcomers while it is this young, and kept for its
// askers while they go on asking.
const (
	snapFresh = time.Second
	snapIdle  = 3 * time.Second
)

func (c *Core) onAsk(p *peer, kind byte, r reader) (int, error) {
	m := &c.in.ask
	if err := m.decode(r); err != nil {
		return 0, err
	}
	l, s := c.find(m.Name, m.Source)
	if l == nil {
		return 0, nil
	}
	if !p.link {
		return l.idx, nil
	}
	if kind == kindRangeAsk {
		l.answerRange(p, s, m)
	} else {
		l.answerPage(p, s, m)
	}
	return l.idx, nil
}

// answerRange sends the deltas asked for; or a snapshot, when they are not
// held and it is worth more than what the asker has; or that it cannot.
func (l *Log) answerRange(p *peer, s *source, m *ask) {
	reply := rangeReply{Name: m.Name, Version: l.version, ID: m.ID, Status: statusGone}
	reply.Deltas.Source = m.Source
	if s == nil || !s.pos.Known() || m.At.Inc > s.pos.Inc {
		l.sendRange(p, &reply)
		return
	}
	at := m.At
	if at.Inc < s.pos.Inc {
		at = Position{Inc: s.pos.Inc}
	}
	reply.Pos, reply.Deltas.Inc = s.pos, s.pos.Inc
	entries, ok := s.ring.from(at.Next)
	switch {
	case at.Next == s.pos.Next:
		reply.Status = statusOK
	case ok:
		reply.Status = statusOK
		size := 0
		for _, e := range entries {
			if size > 0 && size+len(e.Payload) > l.c.opt.PageBytes {
				break
			}
			size += len(e.Payload) + 4
			reply.Deltas.Entries = append(reply.Deltas.Entries, e.entry)
		}
	case at.Next < s.pos.Next && (m.Force || s.pos.Lost <= at.Lost):
		m.At, m.Snap, m.Page = at, Position{}, 0
		l.answerPage(p, s, m)
		return
	}
	l.sendRange(p, &reply)
}

func (l *Log) sendRange(p *peer, m *rangeReply) {
	l.c.send(p, Bulk, l.idx, m.append(l.c.frame(kindRangeReply)))
}

// answerPage sends one page of a snapshot; without one in the ask, the first
// page of a recent one or a new one.
func (l *Log) answerPage(p *peer, s *source, m *ask) {
	reply := pageReply{
		Name: m.Name, Version: l.version, Source: m.Source, ID: m.ID,
		Status: statusGone, Snap: m.Snap, Page: m.Page,
	}
	var sn *snap
	switch {
	case s == nil || !s.pos.Known():
	case m.Snap.Known():
		sn = l.heldSnap(s, m.Snap)
	case !m.Force && m.At.Inc == s.pos.Inc && m.At.Lost < s.pos.Lost:
		// The asker has lost less: it may not know yet that it would lose by it.
	default:
		sn, reply.Status = l.makeSnap(s)
	}
	if sn != nil && (m.Page < uint64(len(sn.pages)) || m.Page == 0) {
		sn.used = l.c.now
		reply.Status, reply.Snap, reply.Digest = statusOK, sn.pos, sn.digest
		reply.Pages, reply.Bytes = uint64(len(sn.pages)), uint64(sn.bytes)
		if m.Page < uint64(len(sn.pages)) {
			reply.Payload = sn.pages[m.Page]
		}
		l.c.stats.PagesServed++
	}
	l.c.send(p, Bulk, l.idx, reply.append(l.c.frame(kindPageReply)))
}

func (l *Log) heldSnap(s *source, at Position) *snap {
	for _, sn := range l.snaps {
		if sn.s == s && sn.pos == at {
			return sn
		}
	}
	return nil
}

// makeSnap returns a snapshot of s, shared with recent askers.
func (l *Log) makeSnap(s *source) (*snap, uint64) {
	for _, sn := range l.snaps {
		if sn.s == s && sn.pos.Inc == s.pos.Inc && sn.pos.Lost == s.pos.Lost && l.c.now-sn.made < snapFresh && l.bridges(s, sn.pos.Next) {
			return sn, statusOK
		}
	}
	pages, err := l.store.Snapshot(s.name, l.c.opt.PageBytes)
	size := 0
	for _, p := range pages {
		if len(p) > MaxFrame-4096 {
			size = l.c.opt.SnapshotBytes + 1
		}
		size += len(p)
	}
	if err != nil || size > l.c.opt.SnapshotBytes || len(pages) > maxPages {
		l.c.stats.SnapshotsFailed++
		return nil, statusBusy
	}
	for l.snapBytes+size > l.c.opt.SnapshotCache && len(l.snaps) > 0 {
		l.evict(slices.Index(l.snaps, slices.MinFunc(l.snaps, func(a, b *snap) int { return int(a.used - b.used) })))
	}
	sn := &snap{s: s, pos: s.pos, digest: s.digest, pages: pages, bytes: size, made: l.c.now, used: l.c.now}
	l.snaps = append(l.snaps, sn)
	l.snapBytes += size
	l.c.stats.SnapshotsMade++
	return sn, statusOK
}

func (l *Log) evict(i int) {
	l.snapBytes -= l.snaps[i].bytes
	l.snaps = slices.Delete(l.snaps, i, i+1)
}

// dropSnaps forgets the snapshots of s, whose content is another now.
func (l *Log) dropSnaps(s *source) {
	for i := len(l.snaps) - 1; i >= 0; i-- {
		if l.snaps[i].s == s {
			l.evict(i)
		}
	}
}

func (l *Log) expireSnaps() {
	for i := len(l.snaps) - 1; i >= 0; i-- {
		if l.c.now-l.snaps[i].used > snapIdle {
			l.evict(i)
		}
	}
}
