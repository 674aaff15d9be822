package logs

import (
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// checkEvery is the time between checks of sources with missing data.
const checkEvery = 20 * time.Millisecond

// forceAfter is how long a source may be behind before a position that is ahead but has lost more
// is accepted.
const forceAfter = 500 * time.Millisecond

// watchSource adds s to the list for runChecks.
func (l *Log) watchSource(s *source) {
	if s.ahead == 0 {
		s.ahead = max(s.moved, 1)
	}
	if s.inCheck {
		return
	}
	s.inCheck = true
	l.checks = append(l.checks, s)
	l.nextCheck = min(l.nextCheck, l.g.Now)
}

// runChecks checks every source with missing data and removes repaired ones from the list.
func (l *Log) runChecks() {
	list := l.checks
	l.checks = l.checks[:0]
	kept := 0
	for _, s := range list {
		l.enter(s)
		again := l.check(s)
		l.leave(s)
		if again {
			list[kept] = s
			kept++
		} else {
			s.inCheck = false
			s.behind, s.ahead = 0, 0
		}
	}
	clear(list[kept:])
	l.checks = list[:kept]
	l.nextCheck = group.Never
	if l.draining {
		l.nextCheck, l.draining = l.g.Now, false
	} else if kept > 0 {
		l.nextCheck = l.g.Now + checkEvery
	}
}

// check selects the next data to fetch for s and reports whether to check again.
func (l *Log) check(s *source) bool {
	if s.load != nil {
		l.watchLoad(s)
		return true
	}
	if !s.pos.Known() {
		return false
	}
	if s.pend.startsAt(s.pos.Next) {
		l.drainPending(l.g.Now, s)
		return true
	}
	want, best, waiting := l.choose(s)
	if want == lackNothing {
		return waiting || s.pend.len() > 0
	}
	now := l.g.Now
	if s.behind == 0 {
		s.behind = max(now, 1)
	}
	// Data in transit need not be fetched. A source without a position has nothing in transit.
	fresh := s.pos.Next == 0
	due := fresh || (now-s.behind >= l.g.Opt.GapDelay && now-s.moved >= l.g.Opt.GapDelay)
	h := &l.of(best).claims[s.slot]
	// The load may turn out to be useless, so do not repeat it immediately.
	doubtful := want == lackEqual || want == lackLost && !l.bridges(s, h.pos.Next)
	if l.loading >= l.g.Opt.Loads || (want == lackDeltas && !due) || (doubtful && now < s.healAt) {
		return true
	}
	ld := &load{p: best, begun: now, snapshot: want != lackDeltas, heal: want == lackEqual}
	if want == lackDeltas {
		late := fresh || now-s.behind >= forceAfter
		rangeGone := l.of(best).lacksDeltas(s)
		if rangeGone && h.pos.Lost > s.pos.Lost && !late {
			return true
		}
		ld.snapshot, ld.force = rangeGone, late
	}
	if doubtful {
		s.healAt = now + min(30*time.Second, 250*time.Millisecond<<min(s.differs, 10))
		s.differs++
	}
	l.start(s, ld)
	return true
}

// choose returns the worst lack of s and the best peer to fix it. waiting is true if a peer could
// fix it but cannot take an ask yet.
func (l *Log) choose(s *source) (want lack, best *group.Peer, waiting bool) {
	var bestScore [4]uint64
	for i, p := range l.g.Peers {
		pl := l.of(p)
		h := &pl.claims[s.slot]
		k := l.lacks(p, s, h)
		if !p.Up || k == lackNothing {
			continue
		}
		if k == lackLost && l.g.Now < s.healAt && !l.bridges(s, h.pos.Next) {
			if waiting = true; h.pos.Next <= s.pos.Next {
				continue
			}
			k = lackDeltas
		}
		if l.g.Now < pl.refused[s.slot].until {
			waiting = true
			continue
		}
		score := [4]uint64{priority(k, pl.lacksDeltas(s)), ^h.pos.Lost, 1, group.Mix(s.hash ^ uint64(i+1) ^ l.g.SelfHash)}
		if l.g.InRemoteZone(p) { // prefer the own zone
			score[2] = 0
		}
		if best == nil || slices.Compare(bestScore[:], score[:]) < 0 {
			want, best, bestScore = k, p, score
		}
	}
	return want, best, waiting
}

// priority orders lacks: first a snapshot with fewer losses, which repairs everything at once; then
// deltas from peers that hold them; then the rest.
func priority(k lack, gone bool) uint64 {
	switch {
	case k == lackLost:
		return 3
	case k == lackDeltas && !gone:
		return 2
	case k == lackDeltas:
		return 1
	}
	return 0
}
