package logs

import (
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/group"
	"github.com/grapevine-epp/grapevine/cluster/wire"
)

func (l *Log) takeRange(p *group.Peer, s *source, m *wire.RangeReply) {
	switch m.Status {
	case wire.StatusBusy:
		l.fail(s, 100*time.Millisecond)
		return
	case wire.StatusGone:
		l.of(p).claims[s.slot].gone = s.pos.Next + 1
		l.endLoad(s)
		return
	}
	ld, before := s.load, s.pos
	ld.tries = 0
	l.mergeGroup(p, s, &m.Deltas)
	if s.load != ld {
		return // a new incarnation ended it
	}
	if s.pos.Inc == m.Pos.Inc && s.pos.Next < m.Pos.Next && s.pos.Beats(before) {
		l.ask(s)
		return
	}
	if s.pos == before && s.pos.Next < m.Pos.Next {
		l.fail(s, 100*time.Millisecond)
		return
	}
	l.endLoad(s)
}

// maxPages bounds the pages of a snapshot.
const maxPages = 1 << 16

func (l *Log) takePage(s *source, m *wire.PageReply) {
	ld := s.load
	switch m.Status {
	case wire.StatusBusy:
		l.fail(s, 100*time.Millisecond)
		return
	case wire.StatusGone:
		l.restart(s)
		return
	}
	if !ld.snap.Known() {
		if !l.firstPage(s, m) {
			l.g.Refuse(group.RefusedAnswer)
			l.fail(s, 5*time.Second)
			return
		}
	} else if m.Snap != ld.snap || (m.Page >= uint64(len(ld.pages)) && len(ld.pages) > 0) {
		l.g.Refuse(group.RefusedAnswer)
		return
	}
	if len(ld.pages) > 0 && ld.pages[m.Page] == nil {
		ld.pages[m.Page] = m.Payload
		ld.have++
		ld.bytes += uint64(len(m.Payload))
		ld.at, ld.tries = l.g.Now, 0
	}
	switch {
	case ld.bytes > ld.total:
		l.g.Refuse(group.RefusedAnswer)
		l.fail(s, 5*time.Second)
	case ld.have < len(ld.pages):
		l.askPages(s, false)
	default:
		l.commit(s)
	}
}

// firstPage starts a snapshot from its first page.
func (l *Log) firstPage(s *source, m *wire.PageReply) bool {
	if m.Page != 0 || m.Pages > maxPages || m.Bytes > uint64(l.g.Opt.SnapshotBytes) || !m.Snap.Known() || m.Snap.Lost > m.Snap.Next {
		return false
	}
	ld := s.load
	ld.snapshot, ld.snap, ld.digest, ld.total = true, m.Snap, m.Digest, m.Bytes
	ld.pages = make([][]byte, m.Pages)
	ld.asked = min(1, m.Pages)
	return true
}

// restart begins a snapshot anew, because its peer does not hold it any more.
func (l *Log) restart(s *source) {
	ld := s.load
	ld.tries++
	if !ld.snap.Known() || ld.tries >= 3 {
		l.fail(s, 300*time.Millisecond)
		return
	}
	*ld = load{p: ld.p, id: ld.id, tries: ld.tries, force: ld.force, snapshot: true, heal: ld.heal}
	l.ask(s)
}

// commit replaces what is known of s by a complete snapshot and applies what
// is known beyond it. It does so only if that is worth more than what is
// known: knowledge never moves back.
func (l *Log) commit(s *source) {
	ld := s.load
	var tail []ringEntry
	bridged := true
	if ld.snap.Inc == s.pos.Inc && ld.snap.Next < s.pos.Next {
		tail, bridged = s.ring.from(ld.snap.Next)
	}
	switch {
	case ld.snap.Inc < s.pos.Inc:
		l.g.Stats.SnapshotsFenced++
		l.endLoad(s)
		return
	case !bridged:
		l.g.Stats.SnapshotsUnbridged++
		l.fail(s, 50*time.Millisecond)
		return
	case !ld.heal && ld.snap.Inc == s.pos.Inc && ld.snap.Next <= s.pos.Next && ld.snap.Lost >= s.pos.Lost:
		l.endLoad(s) // overtaken by live deltas
		return
	}
	tail = slices.Clone(tail)
	if err := l.store.Restore(s.name, ld.pages); err != nil {
		l.g.Refuse(group.RefusedPayload)
		l.fail(s, 5*time.Second)
		return
	}
	l.g.Stats.SnapshotsLoaded++
	l.g.Stats.SnapshotBytes += ld.bytes
	l.dropSnaps(s)
	s.pos = ld.snap
	s.ring.clear()
	l.touch(s)
	if s.digest != ld.digest {
		// The content is not what its peer has: worth nothing until healed.
		l.g.Stats.SnapshotsCorrupt++
		s.pos.Lost = s.pos.Next
		l.fail(s, 5*time.Second)
	} else {
		l.endLoad(s)
	}
	for _, e := range tail {
		l.apply(s, Delta{Source: s.name, Inc: s.pos.Inc, First: e.First, Last: e.Last, Payload: e.Payload})
	}
	s.pend.dropBefore(s.pos.Inc, s.pos.Next)
	l.drainPending(s)
}
