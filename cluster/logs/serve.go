package logs

import (
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/group"
	"github.com/grapevine-epp/grapevine/cluster/wire"
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
// askers while they go on asking. One that cannot be made is tried again after
// pauses of at most snapPause.
const (
	snapFresh = time.Second
	snapIdle  = 3 * time.Second
	snapPause = 30 * time.Second
)

// answerRange sends the deltas asked for; or a snapshot, when they are not
// held and it is worth more than what the asker has; or that it cannot.
func (l *Log) answerRange(p *group.Peer, s *source, m *wire.Ask) {
	reply := wire.RangeReply{Name: m.Name, Version: l.version, ID: m.ID, Status: wire.StatusGone}
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
		reply.Status = wire.StatusOK
	case ok:
		reply.Status = wire.StatusOK
		size := 0
		for _, e := range entries {
			if size > 0 && size+len(e.Payload) > l.g.Opt.PageBytes {
				break
			}
			size += len(e.Payload) + 4
			reply.Deltas.Entries = append(reply.Deltas.Entries, e.Entry)
		}
	case at.Next < s.pos.Next && (m.Force || s.pos.Lost <= at.Lost):
		m.At, m.Snap, m.Page = at, Position{}, 0
		l.answerPage(p, s, m)
		return
	}
	l.sendRange(p, &reply)
}

func (l *Log) sendRange(p *group.Peer, m *wire.RangeReply) {
	l.g.Send(p, group.Bulk, l.idx, m.Append(l.g.Frame(wire.KindRangeReply)))
}

// answerPage sends one page of a snapshot; without one in the ask, the first
// page of a recent one or a new one.
func (l *Log) answerPage(p *group.Peer, s *source, m *wire.Ask) {
	reply := wire.PageReply{
		Name: m.Name, Version: l.version, Source: m.Source, ID: m.ID,
		Status: wire.StatusGone, Snap: m.Snap, Page: m.Page,
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
		sn.used = l.g.Now
		reply.Status, reply.Snap, reply.Digest = wire.StatusOK, sn.pos, sn.digest
		reply.Pages, reply.Bytes = uint64(len(sn.pages)), uint64(sn.bytes)
		if m.Page < uint64(len(sn.pages)) {
			reply.Payload = sn.pages[m.Page]
		}
		l.g.Stats.PagesServed++
	}
	l.g.Send(p, group.Bulk, l.idx, reply.Append(l.g.Frame(wire.KindPageReply)))
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
		if sn.s == s && sn.pos.Inc == s.pos.Inc && sn.pos.Lost == s.pos.Lost && l.g.Now-sn.made < snapFresh && l.bridges(s, sn.pos.Next) {
			return sn, wire.StatusOK
		}
	}
	if l.g.Now < s.snapAfter {
		return nil, wire.StatusBusy
	}
	pages, err := l.store.Snapshot(s.name, l.g.Opt.PageBytes)
	size := 0
	for _, p := range pages {
		if len(p) > wire.MaxFrame-4096 {
			size = l.g.Opt.SnapshotBytes + 1
		}
		size += len(p)
	}
	if err != nil || size > l.g.Opt.SnapshotBytes || len(pages) > maxPages {
		// Nothing says that the next try will do better, and each holds up writers.
		s.snapAfter = l.g.Now + min(snapPause, 250*time.Millisecond<<min(s.snapFails, 10))
		s.snapFails++
		l.g.Stats.SnapshotsFailed++
		return nil, wire.StatusBusy
	}
	s.snapFails = 0
	for l.snapBytes+size > l.g.Opt.SnapshotCache && len(l.snaps) > 0 {
		l.evict(slices.Index(l.snaps, slices.MinFunc(l.snaps, func(a, b *snap) int { return int(a.used - b.used) })))
	}
	sn := &snap{s: s, pos: s.pos, digest: s.digest, pages: pages, bytes: size, made: l.g.Now, used: l.g.Now}
	l.snaps = append(l.snaps, sn)
	l.snapBytes += size
	l.g.Stats.SnapshotsMade++
	return sn, wire.StatusOK
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
		if l.g.Now-l.snaps[i].used > snapIdle {
			l.evict(i)
		}
	}
}
