package share

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Limits of what is believed of a log that stands still.
const (
	usualBlock = 32                      // how many tokens a block has where two seconds are long for one
	usualPause = time.Second             // an engine of such blocks that works writes to its log within that time
	gaugesOld  = 1500 * time.Millisecond // then an engine is judged by the answers that are on their way
	inStep     = 8                       // so many answers that go on may all be just before the end of a block
)

// work is what is known of an engine's work at a moment.
type work struct {
	at    time.Time
	runs  bool // requests are being answered
	block int  // tokens of a block; 0: not known
	count int  // requests that are being answered
	done  endpoint.Progress
}

// workOf returns what an engine's gauges say of its work. Of one whose gauges cannot be
// read the replicas know which of their requests have had a first token.
func workOf(book *endpoint.LoadTracker, ep *endpoint.Endpoint, now time.Time) work {
	g := ep.Gauges()
	w := work{at: g.At, runs: g.Running > 0, block: g.BlockSize, count: g.Running, done: g.Progress}
	if now.Sub(g.At) > gaugesOld {
		l := book.Load(ep, now)
		w.at, w.runs, w.done = now, l.Requests > l.Waiting, endpoint.Progress{}
	}
	return w
}

// owes reports whether an engine that was at from and is at w now must have filled a block
// in between, which it writes to its log. Each request may compute as many tokens as fit a
// block, less one, and fill none: prompts that are held but for their ends, with answers of
// a few tokens, bring no events at all, however many they are. Answers that go on are hardly
// all in step. Of engines that do not count it is taken for granted.
func (w *work) owes(from endpoint.Progress) bool {
	if !w.done.Known || w.block <= 0 {
		return true
	}
	if !from.Known {
		return false // there is nothing to compare with yet
	}
	requests := w.done.Ended - from.Ended + uint64(min(w.count, inStep))
	return w.done.Computed-from.Computed > requests*uint64(w.block)
}

// slowness is how much longer than usual the log of an engine may stand still: those of
// large blocks write to it more seldom.
func (w *work) slowness() (times, of int64) {
	return int64(max(w.block, usualBlock)), usualBlock
}

// stall finds out for how long a log has stood still while its engine worked.
type stall struct {
	at     cluster.Position
	looked time.Time // at the log, last
	moved  time.Time // when at was reached, at the latest
	// quiet is up to when nothing can be missing: the log moved after that, or the engine
	// rested then.
	quiet time.Time
	busy  time.Time         // since when every look at the engine shows it at work; zero: the last shows none
	runs  bool              // the last look shows it at work, be it of before the log moved
	from  endpoint.Progress // of the first look at it after the log moved
	owes  bool              // it has filled a block since then
	// counts: the last look brought its counters.
	counts bool
	lasts  time.Duration
	usual  time.Duration
}

// look takes in the log's position and the engine's work.
func (st *stall) look(now time.Time, at cluster.Position, w work) {
	if st.looked.IsZero() {
		st.looked = now
	}
	if at != st.at || st.moved.IsZero() {
		st.at, st.moved, st.quiet, st.busy = at, now, st.looked, time.Time{}
		st.from, st.owes = endpoint.Progress{}, false
	}
	if w.done.Known && (w.done.Computed < st.from.Computed || w.done.Ended < st.from.Ended) {
		st.from = endpoint.Progress{} // it began anew
	}
	if st.counts && !w.done.Known && !st.busy.IsZero() {
		st.busy = w.at // its page does not come any more: from now on it is judged without
	}
	st.counts = w.done.Known
	st.owes = st.owes || w.done.Known && w.owes(st.from)
	if !st.from.Known && w.at.After(st.moved) {
		st.from = w.done
	}
	owes := st.owes || w.owes(st.from)
	switch {
	case !w.runs:
		st.busy = time.Time{}
		if w.at.After(st.quiet) {
			st.quiet = w.at
		}
	case st.busy.IsZero() && w.at.After(st.moved):
		if st.busy = w.at; st.runs { // and did so before the log moved
			st.busy = st.moved
		}
	case !owes && w.done.Ended > st.from.Ended && w.at.After(st.quiet):
		st.quiet = w.at // requests came and went, and none of them need have filled a block
	}
	times, of := w.slowness()
	st.looked, st.runs, st.usual = now, w.runs, time.Duration(int64(usualPause)*times/of)
	st.lasts = 0
	if !st.busy.IsZero() && owes {
		st.lasts = time.Duration(int64(max(now.Sub(st.busy), 0)) * of / times)
	}
}

// stalled returns for how long the logs of an engine have stood still while it worked. The
// gauges of an engine with several ranks do not say which of them works: as long as one
// brings something, the others may be at rest.
func stalled(ranks []*source) time.Duration {
	d := ranks[0].stall.lasts
	for _, s := range ranks[1:] {
		d = min(d, s.stall.lasts)
	}
	return d
}

// age notes up to when what is known of an engine is certain to be complete.
func (s *source) age(ranks []*source) {
	quiet := s.stall.quiet
	for _, o := range ranks {
		if o.stall.quiet.After(quiet) {
			quiet = o.stall.quiet
		}
	}
	s.shown.usual.Store(int64(s.stall.usual))
	if s.stall.runs {
		s.shown.quiet.Store(quiet.UnixNano())
	} else {
		s.shown.quiet.Store(0)
	}
}

// behindBy returns how far what is known may be behind an engine that works; 0: no more
// than is usual.
func (v *shown) behindBy(now time.Time) time.Duration {
	quiet := v.quiet.Load()
	if quiet == 0 {
		return 0
	}
	if d := now.UnixNano() - quiet; d >= v.usual.Load() {
		return time.Duration(d)
	}
	return 0
}
