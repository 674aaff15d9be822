package logs

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/group"
	"github.com/grapevine-epp/grapevine/cluster/wire"
)

// checkEvery is the time between looks at sources that lack something.
const checkEvery = 20 * time.Millisecond

// forceAfter is how long a source may be behind before knowledge that lost
// more than ours is accepted for being further.
const forceAfter = 500 * time.Millisecond

// load is a range or a snapshot being fetched from a peer.
type load struct {
	p        *group.Peer
	id       uint64 // of the outstanding ask
	at       time.Duration
	tries    int
	force    bool
	snapshot bool
	heal     bool // because digests differed

	snap   Position // of the snapshot, once its first page came
	digest Digest
	pages  [][]byte
	have   int
	bytes  uint64
	total  uint64
	asked  uint64 // pages asked for so far
}

// watchSource has s looked at by runChecks.
func (l *Log) watchSource(s *source) {
	if s.inCheck {
		return
	}
	s.inCheck = true
	l.checks = append(l.checks, s)
	l.nextCheck = min(l.nextCheck, l.g.Now)
}

// runChecks looks at every source that lacks something, and drops from the
// list what is well again.
func (l *Log) runChecks() {
	list := l.checks
	l.checks = l.checks[:0]
	kept := 0
	for _, s := range list {
		if l.check(s) {
			list[kept] = s
			kept++
		} else {
			s.inCheck = false
			s.behind = 0
		}
	}
	clear(list[kept:])
	l.checks = list[:kept]
	l.nextCheck = group.Never
	if kept > 0 {
		l.nextCheck = l.g.Now + checkEvery
	}
}

// check decides what to fetch for s, and reports whether to look again.
func (l *Log) check(s *source) bool {
	if s.load != nil {
		l.watchLoad(s)
		return true
	}
	if !s.pos.Known() {
		return false
	}
	want, best, waiting := l.choose(s)
	if want == lackNothing {
		return waiting || s.pend.len() > 0
	}
	now := l.g.Now
	if s.behind == 0 {
		s.behind = max(now, 1)
	}
	// What is on its way need not be fetched. A source that nothing is known
	// of has nothing on its way.
	fresh := s.pos.Next == 0
	due := fresh || (now-s.behind >= l.g.Opt.GapDelay && now-s.moved >= l.g.Opt.GapDelay)
	if l.loading >= l.g.Opt.Loads || (want == lackDeltas && !due) || (want == lackEqual && now < s.healAt) {
		return true
	}
	ld := &load{p: best, snapshot: want != lackDeltas, heal: want == lackEqual}
	h := &l.of(best).claims[s.slot]
	if want == lackDeltas {
		late := fresh || now-s.behind >= forceAfter
		rangeGone := h.gone > s.pos.Next
		if rangeGone && h.pos.Lost > s.pos.Lost && !late {
			return true
		}
		ld.snapshot, ld.force = rangeGone, late
	}
	if ld.heal {
		s.healAt = now + min(30*time.Second, 250*time.Millisecond<<min(s.differs, 10))
		s.differs++
	}
	l.start(s, ld)
	return true
}

// choose returns what s lacks most, and the peer that can best provide it.
// waiting says that somebody could who cannot be asked yet.
func (l *Log) choose(s *source) (want lack, best *group.Peer, waiting bool) {
	var bestScore [3]uint64
	for i, p := range l.g.Peers {
		h := &l.of(p).claims[s.slot]
		k := l.lacks(p, s, h)
		if !p.Up || k == lackNothing {
			continue
		}
		if l.g.Now < h.badUntil {
			waiting = true
			continue
		}
		score := [3]uint64{priority(k, h.gone > s.pos.Next), ^h.pos.Lost, mix(s.hash ^ uint64(i+1) ^ l.g.SelfHash)}
		if best == nil || less3(bestScore, score) {
			want, best, bestScore = k, p, score
		}
	}
	return want, best, waiting
}

// priority orders lacks: a snapshot that lost less heals everything at once;
// then deltas from those who hold them; then the rest.
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

func less3(a, b [3]uint64) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

func (l *Log) start(s *source, ld *load) {
	s.load = ld
	l.loading++
	if ld.snapshot {
		l.g.Stats.SnapshotsAsked++
	} else {
		l.g.Stats.RangesAsked++
	}
	l.ask(s)
}

// ask sends what the load needs next, or again.
func (l *Log) ask(s *source) {
	ld := s.load
	ld.at = l.g.Now
	if !ld.snapshot || !ld.snap.Known() {
		// Pages may come late and in any order; other answers only once.
		delete(l.loads, ld.id)
		ld.id = l.g.NextAsk()
		l.loads[ld.id] = s
	}
	m := wire.Ask{
		Name: []byte(l.name), Version: l.version, Source: []byte(s.name),
		ID: ld.id, At: s.pos, Force: ld.force, Snap: ld.snap,
	}
	if !ld.snapshot {
		l.g.Send(ld.p, group.Live, l.idx, m.Append(l.g.Frame(wire.KindRangeAsk)))
		return
	}
	if ld.snap.Known() {
		l.askPages(s, true)
		return
	}
	l.g.Send(ld.p, group.Live, l.idx, m.Append(l.g.Frame(wire.KindPageAsk)))
}

// pageWindow is how many pages may be on their way.
const pageWindow = 4

// askPages asks for the pages that fit the window; again, also for those asked
// for before.
func (l *Log) askPages(s *source, again bool) {
	ld := s.load
	first := ld.asked
	if again {
		first = 0
	}
	out := 0
	for i := range ld.asked {
		if ld.pages[i] == nil {
			out++
		}
	}
	if again {
		out = 0
	}
	for i := first; i < uint64(len(ld.pages)) && out < pageWindow; i++ {
		if ld.pages[i] != nil {
			continue
		}
		m := wire.Ask{
			Name: []byte(l.name), Version: l.version, Source: []byte(s.name),
			ID: ld.id, At: s.pos, Snap: ld.snap, Page: i,
		}
		l.g.Send(ld.p, group.Live, l.idx, m.Append(l.g.Frame(wire.KindPageAsk)))
		ld.asked = max(ld.asked, i+1)
		out++
	}
}

// maxAsk bounds how long an answer may take, however slow its peer seems.
const maxAsk = 2 * time.Second

// watchLoad repeats an ask that got no answer, and gives up after three.
func (l *Log) watchLoad(s *source) {
	ld := s.load
	if l.g.Now-ld.at < max(l.g.Opt.AskTimeout, min(8*ld.p.RTT, maxAsk)) {
		return
	}
	ld.tries++
	l.g.Stats.AskTimeouts++
	if ld.tries >= 3 {
		l.fail(s, time.Second)
		return
	}
	l.ask(s)
}

// fail ends the load of s and leaves its peer alone for a while.
func (l *Log) fail(s *source, pause time.Duration) {
	l.of(s.load.p).claims[s.slot].badUntil = l.g.Now + pause
	l.endLoad(s)
}

func (l *Log) endLoad(s *source) {
	if s.load == nil {
		return
	}
	delete(l.loads, s.load.id)
	s.load = nil
	l.loading--
	l.watchSource(s)
	l.nextCheck = min(l.nextCheck, l.g.Now)
}
