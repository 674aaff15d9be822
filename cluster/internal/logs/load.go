package logs

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// load is a range or a snapshot being fetched from a peer. Pages of a snapshot are
// added to a stage as they come, in their order.
type load struct {
	p        *group.Peer
	id       uint64 // of the outstanding ask
	begun    time.Duration
	at       time.Duration // of the last ask or answer
	again    time.Duration // when to ask again for a snapshot that is being made; 0 when none is
	tries    int
	force    bool
	snapshot bool
	heal     bool // because digests differed

	snap   Position // of the snapshot, once its first page came
	digest Digest
	count  int           // of pages, as the peer says
	asked  int           // pages asked for so far
	next   int           // the first that is not in the stage
	top    int           // none came from here on
	gap    time.Duration // since when the next one is missed, others having come; 0 when it is not
	got    uint64        // bytes of pages that came
	held   uint64        // of those, not in the stage yet
	total  uint64        // bytes of all pages, as the peer says
	// Pages that are not in the stage yet: those from next on to next+maxWindow.
	window [maxWindow][]byte

	stage   Stage // nil before the first page is added
	working bool  // pages are being added
	err     error // from that
}

// page is where page i is kept, from next on; nil before it comes, and once it is in the stage.
func (ld *load) page(i int) *[]byte { return &ld.window[i%maxWindow] }

// A snapshot that is being made is asked for again and again, but not for ever.
const (
	askAgain = 50 * time.Millisecond
	maxWait  = 15 * time.Second
)

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
	if ld.snapshot && ld.snap.Known() {
		l.askPages(s, ld.asked)
		return
	}
	// Pages may come late and in any order; other answers only once.
	delete(l.loads, ld.id)
	ld.id = l.g.NextAsk()
	l.loads[ld.id] = s
	m := group.Ask{
		Name: []byte(l.name), Version: l.version, Source: []byte(s.name),
		ID: ld.id, At: s.pos, Force: ld.force, Snap: ld.snap,
	}
	kind := byte(group.KindRangeAsk)
	if ld.snapshot {
		kind = group.KindPageAsk
	}
	l.g.Send(ld.p, group.Live, l.idx, m.Append(l.g.Frame(kind)))
}

// Pages that a peer may have on their way, or waiting to be added to stages: for one
// load at least minWindow, for one alone maxWindow.
const (
	minWindow = 4
	maxWindow = 16
)

// maxBatch is how many pages are added to a stage in one go, so that others come
// meanwhile.
const maxBatch = 4

// askPages asks for the pages that fit the window, and anew for those below again.
func (l *Log) askPages(s *source, again int) {
	ld := s.load
	window := min(maxWindow, max(minWindow, 2*maxWindow/max(1, l.loading)))
	for i := ld.next; i < min(ld.count, ld.next+window); i++ {
		if *ld.page(i) != nil || (i < ld.asked && i >= again) {
			continue
		}
		m := group.Ask{
			Name: []byte(l.name), Version: l.version, Source: []byte(s.name),
			ID: ld.id, At: s.pos, Snap: ld.snap, Page: uint64(i),
		}
		l.g.Send(ld.p, group.Live, l.idx, m.Append(l.g.Frame(group.KindPageAsk)))
		ld.asked = max(ld.asked, i+1)
	}
}

// maxAsk bounds how long an answer may take, however slow its peer seems.
const maxAsk = 2 * time.Second

// watchLoad repeats an ask that got no answer, and gives up after three.
func (l *Log) watchLoad(s *source) {
	ld := s.load
	switch {
	case ld.working:
		return // it is not the peer that is waited for
	case ld.again > 0:
		if l.g.Now >= ld.again {
			ld.again = 0
			l.ask(s)
		}
		return
	case ld.gap > 0 && l.g.Now-ld.gap >= max(l.g.Opt.GapDelay, min(2*ld.p.RTT, maxAsk)):
		ld.gap = l.g.Now
		l.askPages(s, ld.top)
		return
	case l.g.Now-ld.at < max(l.g.Opt.AskTimeout, min(8*ld.p.RTT, maxAsk)):
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
	pl := l.of(s.load.p)
	r := pl.refused[s.slot]
	r.until = l.g.Now + pause
	pl.refused[s.slot] = r
	l.askAround(s.load.p)
	l.endLoad(s)
}

// askAround has everybody but p say what they know: others may have what p did not give, and
// followers do not say by themselves how far they came.
func (l *Log) askAround(but *group.Peer) {
	if l.g.Now < l.askedAround+l.g.Opt.FullDigest && l.askedAround > 0 {
		return
	}
	l.askedAround = max(l.g.Now, 1)
	for _, p := range l.g.Peers {
		if p != but && p.Up {
			l.of(p).refresh = true
		}
	}
}

func (l *Log) endLoad(s *source) {
	if s.load == nil {
		return
	}
	delete(l.loads, s.load.id)
	s.load.abandon()
	s.load, s.room = nil, 0
	l.loading--
	l.watchSource(s)
	l.nextCheck = min(l.nextCheck, l.g.Now)
}

// abandon gives up what was loaded; later, if pages are being added to it.
func (ld *load) abandon() {
	if !ld.working && ld.stage != nil {
		ld.stage.Discard()
		ld.stage = nil
	}
}

// restart begins a snapshot anew, because its peer does not hold it any more.
func (l *Log) restart(s *source) {
	ld := s.load
	ld.tries++
	if !ld.snap.Known() || ld.tries >= 3 {
		l.fail(s, 300*time.Millisecond)
		return
	}
	ld.abandon()
	s.room = 0
	s.load = &load{p: ld.p, id: ld.id, begun: ld.begun, tries: ld.tries, force: ld.force, snapshot: true, heal: ld.heal}
	l.ask(s)
}
