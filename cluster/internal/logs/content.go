package logs

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// content is what the deltas of a source lead to: all that merging one reads and writes.
// The source's lock guards it.
type content struct {
	pos     Position
	moved   time.Duration // when pos last changed
	moves   uint64        // how often pos or digest changed
	digest  Digest
	ring    ring
	pend    pending
	room    int           // for pend, if more than Options.PendingBytes
	push    []group.Entry // applied, to be sent to peers
	pushInc uint64
	pushLen int
	tally   group.Tally
	todo    todo
	isFresh bool // among those that collect will look at
	gone    bool // not shared any more
}

// todo is what merging leaves to be done by those who know the whole log.
type todo uint8

const (
	todoPush  todo = 1 << iota // there are deltas to push
	todoCheck                  // something is missing
	todoDrain                  // more that was kept aside can be applied at once
	todoTell                   // something was not pushed that others have to know of
)

// remind has collect look at s, if there is something to do, and returns when. The caller
// holds the lock of s and perhaps no other.
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

// maxDelay bounds how long deltas wait for company in a large group.
const maxDelay = 200 * time.Millisecond

// pushDelay is how long deltas wait to be pushed: the longer, the more peers each frame costs.
func (l *Log) pushDelay() time.Duration {
	delay := l.g.Opt.DeltaDelay
	return max(delay, min(maxDelay, 3*delay*time.Duration(len(l.g.Peers)-2)))
}

// Fresh reports whether Tick has something to do that Deadline does not know of. It may
// be called while other methods run.
func (l *Log) Fresh() bool { return l.fresh.Load() != nil }

// collect looks at the sources of which deltas were merged.
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

// enter locks s for a method that knows the whole log, and leave unlocks it. Only one source is
// locked at a time, and no method that enters is called with one locked.
func (l *Log) enter(s *source) {
	s.lock()
	l.attend(s)
}

func (l *Log) leave(s *source) {
	l.attend(s)
	s.unlock()
}

// attend does what merging left to be done.
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
	if s.todo&todoTell != 0 {
		l.announce(s)
	}
	if s.todo&todoDrain != 0 {
		l.draining, l.nextCheck = true, l.g.Now
	}
	s.todo = 0
}
