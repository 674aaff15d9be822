package logs

import (
	"errors"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// snap is a snapshot held for those who ask for its pages. Its content is that of
// the moment at which its making began.
type snap struct {
	s      *source
	pos    Position
	digest Digest
	pages  [][]byte
	bytes  int
	made   time.Duration // 0 while it waits to be made, or is being made
	used   time.Duration
	taken  bool // the last page was asked for, and none since
	askers []asker

	dump    Dump
	err     error
	dropped bool // of no use any more
}

// A snapshot is handed to newcomers while it is this young, and kept for its
// askers while they go on asking; while they do so this often, and have not come to its
// end, much of it keeps others from being made. One that cannot be made is tried again after pauses of at most
// snapPause.
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

// recentSnap returns a snapshot of s, shared with recent askers, that is made or
// will be; nil when it could not be made lately.
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

// makeSnaps has the next snapshot made, one at a time, unless too much is held that
// others are fetching.
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

// beginSnap takes the content.
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

// endSnap hands the snapshot out.
func (l *Log) endSnap(sn *snap) {
	l.making, sn.dump = nil, nil
	defer l.makeSnaps()
	if sn.dropped {
		return
	}
	s := sn.s
	if sn.err != nil {
		// Nothing says that the next try will do better, and each costs a while.
		s.snapAfter = l.g.Now + min(snapPause, 250*time.Millisecond<<min(s.snapFails, 10))
		s.snapFails++
		s.snapSize = 0
		if errors.Is(sn.err, ErrTooLarge) {
			s.snapSize = max(sn.bytes, l.g.Opt.SnapshotBytes+1) // the store may have stopped before
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

// evictOther drops the snapshot that was not used for longest.
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

// dropSnap forgets a snapshot, and tells those who wait for it that there is none.
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

// dropSnaps forgets the snapshots of s, whose content is another now.
func (l *Log) dropSnaps(s *source) {
	for _, sn := range slices.Clone(l.snaps) {
		if sn.s == s {
			l.dropSnap(sn)
		}
	}
}

// tendSnaps drops those that nobody asks for any more, and tells those who wait to go
// on waiting.
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

// nextSnap returns when tendSnaps is due next.
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
