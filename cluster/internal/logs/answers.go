package logs

import (
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

func (l *Log) takeRange(p *group.Peer, s *source, m *group.RangeReply) {
	switch m.Status {
	case group.StatusBusy:
		l.fail(s, 100*time.Millisecond)
		return
	case group.StatusGone:
		pl := l.of(p)
		pl.refused[s.slot] = refusal{until: pl.refused[s.slot].until, inc: s.pos.Inc, gone: s.pos.Next + 1}
		l.endLoad(s)
		return
	}
	ld, before := s.load, s.pos
	ld.tries = 0
	l.mergeGroup(p, s, &m.Deltas, false, nil)
	if s.load != ld {
		return // a new incarnation ended it
	}
	if s.pos.Inc == m.Pos.Inc && s.pos.Next < m.Pos.Next && s.pos.Exceeds(before) {
		l.ask(s)
		return
	}
	if s.pos == before && s.pos.Next < m.Pos.Next {
		l.fail(s, 100*time.Millisecond)
		return
	}
	l.endLoad(s)
}

// maxPages is the maximum number of pages of a snapshot.
const maxPages = 1 << 16

func (l *Log) takePage(s *source, m *group.PageReply) {
	ld := s.load
	switch m.Status {
	case group.StatusBusy:
		l.takeBusy(s, m)
		return
	case group.StatusGone:
		l.restart(s)
		return
	}
	if !ld.snap.Known() {
		if !l.firstPage(s, m) {
			l.g.Refuse(group.RefusedAnswer)
			l.fail(s, 5*time.Second)
			return
		}
	} else if m.Snap != ld.snap || (m.Page >= uint64(ld.count) && ld.count > 0) {
		l.g.Refuse(group.RefusedAnswer)
		return
	}
	if i := int(m.Page); i >= ld.next && i < ld.asked && *ld.page(i) == nil {
		*ld.page(i) = m.Payload
		ld.top = max(ld.top, i+1)
		ld.got += uint64(len(m.Payload))
		ld.held += uint64(len(m.Payload))
		ld.at, ld.tries = l.g.Now, 0
	}
	if ld.got > ld.total {
		l.g.Refuse(group.RefusedAnswer)
		l.fail(s, 5*time.Second)
		return
	}
	l.fill(s)
}

// takeBusy switches to another peer, or waits for a snapshot that is being made.
func (l *Log) takeBusy(s *source, m *group.PageReply) {
	ld := s.load
	if ld.snap.Known() || !m.Snap.Known() || l.g.Now-ld.begun > maxWait {
		s.denied++
		s.tooLarge = 0
		if m.Bytes > uint64(l.g.Opt.SnapshotBytes) {
			s.tooLarge = m.Bytes
		}
		l.fail(s, 100*time.Millisecond)
		return
	}
	ld.snapshot, ld.again, ld.tries = true, l.g.Now+askAgain, 0
}

// firstPage starts loading a snapshot with its first page.
func (l *Log) firstPage(s *source, m *group.PageReply) bool {
	if m.Bytes > uint64(l.g.Opt.SnapshotBytes) {
		s.denied++
		s.tooLarge = m.Bytes
	}
	if m.Page != 0 || m.Pages > maxPages || m.Bytes > uint64(l.g.Opt.SnapshotBytes) || !m.Snap.Known() || m.Snap.Lost > m.Snap.Next {
		return false
	}
	ld := s.load
	ld.snapshot, ld.snap, ld.digest, ld.total = true, m.Snap, m.Digest, m.Bytes
	ld.count = int(m.Pages)
	ld.asked = min(1, ld.count)
	s.room = int(ld.total / 16)
	return true
}

// fill adds consecutive received pages to the stage. Once all pages are added, it commits the
// snapshot.
func (l *Log) fill(s *source) {
	ld := s.load
	end := ld.next
	for end < min(ld.count, ld.next+maxBatch) && *ld.page(end) != nil {
		end++
	}
	switch {
	case end == ld.next+maxBatch || end >= ld.top:
		ld.gap = 0
	case ld.gap == 0 || end > ld.next:
		ld.gap = l.g.Now
	}
	switch {
	case ld.working:
	case ld.stage == nil && (end > 0 || ld.count == 0), end > ld.next:
		ld.working = true
		pages := make([][]byte, 0, maxBatch)
		for i := ld.next; i < end; i++ {
			pages = append(pages, *ld.page(i))
		}
		l.g.Submit(group.Job{
			Lane: group.Loading,
			Run:  func(func() bool) { ld.err = l.addPages(s.name, ld, pages) },
			End: func() {
				l.enter(s)
				defer l.leave(s)
				l.filled(s, ld, end)
			},
		})
	case ld.next == ld.count && ld.stage != nil:
		l.commit(s)
		return
	}
	l.askPages(s, 0)
}

// addPages adds pages to the stage of a load. It runs outside of the log's methods. It reads only
// immutable fields of the log, and fields of the load that do not change before filled.
func (l *Log) addPages(source string, ld *load, pages [][]byte) (err error) {
	if ld.stage == nil {
		if ld.stage, err = l.store.Stage(source, ld.total); err != nil {
			ld.stage = nil
			return err
		}
	}
	for _, p := range pages {
		if err := ld.stage.Page(p); err != nil {
			return err
		}
	}
	return nil
}

// filled continues the load after pages were added.
func (l *Log) filled(s *source, ld *load, end int) {
	ld.working = false
	if s.load != ld {
		ld.abandon() // the load ended in the meantime
		return
	}
	if ld.err != nil {
		l.g.Refuse(group.RefusedPayload)
		l.fail(s, 5*time.Second)
		return
	}
	for ; ld.next < end; ld.next++ {
		ld.held -= uint64(len(*ld.page(ld.next)))
		*ld.page(ld.next) = nil
	}
	ld.at = l.g.Now
	l.fill(s)
}

// commit replaces the content of s with a complete snapshot and applies the known deltas that
// follow it. It does so only if the result is better than the present position, which never moves
// back.
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
		l.endLoad(s) // live deltas have overtaken it
		return
	}
	tail = slices.Clone(tail)
	if err := ld.stage.Commit(); err != nil {
		l.g.Refuse(group.RefusedPayload)
		l.fail(s, 5*time.Second)
		return
	}
	ld.stage = nil
	l.g.Stats.SnapshotsLoaded++
	l.g.Stats.SnapshotBytes += ld.got
	l.dropSnaps(s)
	s.pos, s.compared = ld.snap, Position{}
	l.announce(s)
	s.ring.clear()
	l.touch(l.g.Now, s)
	if s.digest != ld.digest {
		// The content differs from the peer's, so it counts as lost until repaired.
		l.g.Stats.SnapshotsCorrupt++
		s.pos.Lost = s.pos.Next
		l.fail(s, 5*time.Second)
	} else {
		l.endLoad(s)
	}
	for _, e := range tail {
		l.apply(l.g.Now, s, Delta{Source: s.name, Inc: s.pos.Inc, First: e.First, Last: e.Last, Payload: e.Payload})
	}
	s.pend.dropBefore(s.pos.Inc, s.pos.Next)
	l.drainPending(l.g.Now, s)
}
