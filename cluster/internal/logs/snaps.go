package logs

import (
	"errors"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// snap is a snapshot whose pages peers can request. Its content is the state when its making began.
type snap struct {
	s      *source
	pos    Position
	digest Digest
	pages  [][]byte
	bytes  int
	made   time.Duration // 0 until it is made
	used   time.Duration
	taken  bool // the last page was requested, and none since
	askers []asker

	dump    Dump
	err     error
	dropped bool // no longer of use
}

// A snapshot is served to new requesters while younger than snapFresh, and kept while its
// requesters continue. Snapshots whose requesters are active and not yet at the end delay the
// making of others if they take too much memory. A failed snapshot is retried after pauses of at
// most snapPause.
const (
	snapFresh = time.Second
	snapIdle  = 3 * time.Second
	snapInUse = 500 * time.Millisecond
	snapPause = 30 * time.Second
)

var errStopped = errors.New("logs: stopped")

func (l *Log) heldSnap(s *source, at Position) *snap {
	for _, sn := range l.snaps {
		if sn.s == s && sn.pos == at && sn.made > 0 {
			return sn
		}
	}
	return nil
}

// recentSnap returns a snapshot of s, shared with other requesters, that is made or will be. It
// returns nil if making one failed recently.
func (l *Log) recentSnap(s *source) *snap {
	for _, sn := range l.snaps {
		if sn.s != s {
			continue
		}
		young := l.g.Now-sn.made < snapFresh && sn.pos.Inc == s.pos.Inc && sn.pos.Lost == s.pos.Lost && l.bridges(s, sn.pos.Next)
		if sn.made == 0 || young {
			return sn
		}
	}
	if l.g.Now < s.snapAfter {
		return nil
	}
	sn := &snap{s: s}
	l.snaps = append(l.snaps, sn)
	l.makeSnaps()
	return sn
}

// makeSnaps starts making the next snapshot, one at a time, unless snapshots being fetched take too
// much memory.
func (l *Log) makeSnaps() {
	inUse := 0
	for _, sn := range l.snaps {
		if sn.made > 0 && !sn.taken && l.g.Now-sn.used < snapInUse {
			inUse += sn.bytes
		}
	}
	if l.making != nil || inUse > l.g.Opt.SnapshotCache/2 {
		return
	}
	i := slices.IndexFunc(l.snaps, func(sn *snap) bool { return sn.made == 0 })
	if i < 0 {
		return
	}
	sn := l.snaps[i]
	l.making = sn
	l.g.Submit(group.Job{
		Lane:  group.Making,
		Begin: func() { l.beginSnap(sn) },
		Run:   func(stop func() bool) { sn.fill(stop, l.g.Opt.SnapshotBytes) },
		End:   func() { l.endSnap(sn) },
	})
}

// beginSnap starts a dump of the content.
func (l *Log) beginSnap(sn *snap) {
	if sn.dropped {
		return
	}
	l.enter(sn.s)
	defer l.leave(sn.s)
	if d := l.store.Digest(sn.s.name); d != sn.s.digest {
		sn.s.digest, sn.s.compared = d, Position{}
		l.compare(sn.s)
	}
	sn.pos, sn.digest = sn.s.pos, sn.s.digest
	sn.dump, sn.err = l.store.Snapshot(sn.s.name, l.g.Opt.PageBytes)
}

// fill encodes the content.
func (sn *snap) fill(stop func() bool, limit int) {
	if sn.dump == nil {
		return
	}
	defer sn.dump.Close()
	for sn.err == nil {
		if stop() {
			sn.err = errStopped
			return
		}
		var page []byte
		if page, sn.err = sn.dump.Next(); sn.err != nil || page == nil {
			return
		}
		sn.pages = append(sn.pages, page)
		sn.bytes += len(page)
		if sn.bytes > limit || len(page) > group.MaxFrame-4096 || len(sn.pages) > maxPages {
			sn.err = ErrTooLarge
		}
	}
}

// endSnap answers the requesters.
func (l *Log) endSnap(sn *snap) {
	l.making, sn.dump = nil, nil
	defer l.makeSnaps()
	if sn.dropped {
		return
	}
	s := sn.s
	if sn.err != nil {
		// The next attempt may fail as well, and each one takes a while.
		s.snapAfter = l.g.Now + min(snapPause, 250*time.Millisecond<<min(s.snapFails, 10))
		s.snapFails++
		s.snapSize = 0
		if errors.Is(sn.err, ErrTooLarge) {
			s.snapSize = max(sn.bytes, l.g.Opt.SnapshotBytes+1) // the store may have stopped before the limit
		}
		l.g.Stats.SnapshotsFailed++
		sn.pages, sn.bytes = nil, 0
		l.dropSnap(sn)
		return
	}
	s.snapFails, s.snapSize = 0, 0
	sn.made, sn.used = max(l.g.Now, 1), l.g.Now
	l.snapBytes += sn.bytes
	l.g.Stats.SnapshotsMade++
	for l.snapBytes > l.g.Opt.SnapshotCache && l.evictOther(sn) {
	}
	for _, a := range sn.askers {
		if a.p.Link {
			l.servePage(a.p, sn, a.id, 0)
		}
	}
	sn.askers = nil
}

// evictOther drops the least recently used snapshot other than keep.
func (l *Log) evictOther(keep *snap) bool {
	var oldest *snap
	for _, sn := range l.snaps {
		if sn != keep && sn.made > 0 && (oldest == nil || sn.used < oldest.used) {
			oldest = sn
		}
	}
	if oldest != nil {
		l.dropSnap(oldest)
	}
	return oldest != nil
}

// dropSnap drops a snapshot and sends refusals to its waiting requesters.
func (l *Log) dropSnap(sn *snap) {
	if sn.made > 0 {
		l.snapBytes -= sn.bytes
	}
	for _, a := range sn.askers {
		if a.p.Link {
			l.sendPage(a.p, &group.PageReply{Name: []byte(l.name), Source: []byte(sn.s.name), ID: a.id, Status: group.StatusBusy, Bytes: uint64(sn.s.snapSize)})
		}
	}
	sn.dropped, sn.askers = true, nil
	l.snaps = slices.DeleteFunc(l.snaps, func(o *snap) bool { return o == sn })
}

// dropSnaps drops the snapshots of s, whose content was replaced.
func (l *Log) dropSnaps(s *source) {
	for _, sn := range slices.Clone(l.snaps) {
		if sn.s == s {
			l.dropSnap(sn)
		}
	}
}

// tendSnaps drops unused snapshots and sends waiting requesters another wait.
func (l *Log) tendSnaps() {
	for _, sn := range slices.Clone(l.snaps) {
		if sn.made > 0 {
			if l.g.Now-sn.used > snapIdle {
				l.dropSnap(sn)
			}
			continue
		}
		sn.askers = slices.DeleteFunc(sn.askers, func(a asker) bool {
			late := l.g.Now >= a.until
			if late && a.p.Link {
				l.sendWait(a, sn, l.Position(sn.s.name))
			}
			return late
		})
	}
	if len(l.snaps) > 0 {
		l.makeSnaps()
	}
}

// nextSnap returns when the next tendSnaps is due.
func (l *Log) nextSnap() time.Duration {
	at := group.Never
	for _, sn := range l.snaps {
		if sn.made > 0 {
			at = min(at, sn.used+snapIdle+1)
		} else if sn != l.making {
			at = min(at, l.g.Now+checkEvery)
		}
		for _, a := range sn.askers {
			at = min(at, a.until)
		}
	}
	return at
}
