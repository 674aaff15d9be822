package logs

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// content is the state that the deltas of a source produce: everything that a merge reads and
// writes. The source's lock guards it.
type content struct {
	pos     Position
	moved   time.Duration // when pos last changed
	moves   uint64        // number of changes of pos or digest
	digest  Digest
	ring    ring
	pend    pending
	room    int           // limit for pend, if above Options.PendingBytes
	push    []group.Entry // applied, not yet sent to peers
	pushInc uint64
	pushLen int
	counts  group.DeltaCounts
	todo    todo
	isFresh bool // in the list that collect processes
	gone    bool // no longer shared
}

// todo is the work that a merge leaves to methods that see the whole log.
type todo uint8

const (
	todoPush     todo = 1 << iota // deltas are ready to push
	todoCheck                     // a delta is missing
	todoDrain                     // more pending deltas can be applied now
	todoAnnounce                  // peers must be informed of a change that was not pushed
)

// remind adds s to collect's list if it has work, and returns when the work is due. The caller
// holds the lock of s and may hold no other.
func (l *Log) remind(now time.Duration, s *source) time.Duration {
	if s.todo == 0 || s.isFresh {
		return group.Never
	}
	s.isFresh = true
	for {
		s.nextFresh = l.fresh.Load()
		if l.fresh.CompareAndSwap(s.nextFresh, s) {
			break
		}
	}
	if s.todo == todoPush {
		return now + l.g.Opt.DeltaDelay
	}
	return now
}

// maxDelay bounds how long deltas are batched in a large group.
const maxDelay = 200 * time.Millisecond

// pushDelay is how long deltas are batched. It grows with the number of peers, each of which pays
// for every frame.
func (l *Log) pushDelay() time.Duration {
	delay := l.g.Opt.DeltaDelay
	return max(delay, min(maxDelay, 3*delay*time.Duration(len(l.g.Peers)-2)))
}

// Fresh reports whether Tick has work that Deadline does not yet cover. Safe for concurrent use.
func (l *Log) Fresh() bool { return l.fresh.Load() != nil }

// collect processes the sources into which deltas were merged.
func (l *Log) collect() {
	if !l.Fresh() {
		return
	}
	for s := l.fresh.Swap(nil); s != nil; {
		next := s.nextFresh
		l.enter(s)
		s.isFresh = false
		l.leave(s)
		s = next
	}
}

// enter locks s for a method that sees the whole log; leave unlocks it. Only one source is locked
// at a time, and a method that calls enter must not be called with a source locked.
func (l *Log) enter(s *source) {
	s.lock()
	l.attend(s)
}

func (l *Log) leave(s *source) {
	l.attend(s)
	s.unlock()
}

// attend does the work that merges left.
func (l *Log) attend(s *source) {
	if s.moves != s.noticed {
		s.noticed = s.moves
		s.behind, s.denied = 0, 0
		l.nextAudit = min(l.nextAudit, l.g.Now+l.g.Opt.FullDigest)
		l.compare(s)
	}
	if s.gone {
		return
	}
	l.exceptions(s)
	if s.todo == 0 {
		return
	}
	if s.todo&todoPush != 0 {
		if !s.pushing {
			l.pushing = append(l.pushing, s)
			s.pushing = true
		}
		l.flushAt = min(l.flushAt, l.g.Now+l.pushDelay())
	}
	if s.todo&todoCheck != 0 {
		l.watchSource(s)
	}
	if s.todo&todoAnnounce != 0 {
		l.announce(s)
	}
	if s.todo&todoDrain != 0 {
		l.draining, l.nextCheck = true, l.g.Now
	}
	s.todo = 0
}
