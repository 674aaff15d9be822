package logs

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// load is a range or a snapshot being fetched from a peer. Pages of a snapshot are added to a stage
// in order as they arrive.
type load struct {
	p        *group.Peer
	id       uint64 // of the outstanding request
	begun    time.Duration
	at       time.Duration // of the last request or answer
	again    time.Duration // when to retry a request for a snapshot that is being made; 0 if none is
	tries    int
	force    bool
	snapshot bool
	heal     bool // started because digests differed

	snap   Position // of the snapshot, known from its first page
	digest Digest
	count  int           // number of pages, as announced
	asked  int           // pages requested so far
	next   int           // first page not in the stage
	top    int           // no page from here on has arrived
	gap    time.Duration // since when page next is missing although later ones arrived; 0 if it is not
	got    uint64        // bytes of pages received
	held   uint64        // of those, bytes not in the stage yet
	total  uint64        // bytes of all pages, as announced
	// Pages not in the stage yet: next to next+maxWindow.
	window [maxWindow][]byte

	stage   Stage // nil before the first page is added
	working bool  // pages are being added to the stage
	err     error // of adding pages
}

// page is the slot of page i, for i >= next. It is nil before the page arrives and once it is in
// the stage.
func (ld *load) page(i int) *[]byte { return &ld.window[i%maxWindow] }

// A snapshot that is being made is requested repeatedly, for at most maxWait.
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

// ask sends the load's next request, or repeats the last one.
func (l *Log) ask(s *source) {
	ld := s.load
	ld.at = l.g.Now
	if ld.snapshot && ld.snap.Known() {
		l.askPages(s, ld.asked)
		return
	}
	// Pages may arrive late and in any order; other answers only once.
	delete(l.loads, ld.id)
	ld.id = l.g.NextRequestID()
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

// Pages of a load that may be in transit or waiting to be added to the stage: at least minWindow,
// and maxWindow for a single load.
const (
	minWindow = 4
	maxWindow = 16
)

// maxBatch is how many pages are added to a stage in one step, so that more pages can arrive in
// between.
const maxBatch = 4

// askPages requests the pages that fit in the window, and repeats the requests for those below
// again.
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

// maxAsk bounds the wait for an answer, however slow the peer seems.
const maxAsk = 2 * time.Second

// watchLoad repeats a request that got no answer, and gives up after three.
func (l *Log) watchLoad(s *source) {
	ld := s.load
	switch {
	case ld.working:
		return // not waiting for the peer
	case ld.again > 0:
		if l.g.Now >= ld.again {
			ld.again = 0
			l.ask(s)
		}
		return
	case ld.gap > 0 && l.g.Now-ld.gap >= max(l.g.Opt.GapDelay, min(2*ld.p.RTT.Smoothed, maxAsk)):
		ld.gap = l.g.Now
		l.askPages(s, ld.top)
		return
	case l.g.Now-ld.at < max(l.g.Opt.AskTimeout, min(8*ld.p.RTT.Smoothed, maxAsk)):
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

// fail ends the load of s and avoids its peer for a while.
func (l *Log) fail(s *source, pause time.Duration) {
	pl := l.of(s.load.p)
	r := pl.refused[s.slot]
	r.until = l.g.Now + pause
	pl.refused[s.slot] = r
	l.askAround(s.load.p)
	l.endLoad(s)
}

// askAround requests claims from every peer except one. Others may have the content that it did not
// provide, and followers do not report their positions unasked.
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

// abandon discards the loaded data, or leaves that to filled if pages are being added.
func (ld *load) abandon() {
	if !ld.working && ld.stage != nil {
		ld.stage.Discard()
		ld.stage = nil
	}
}

// restart starts the snapshot over, because the peer no longer holds the old one.
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
