package share

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Limits for judging a log that does not move.
const (
	usualBlock = 32                      // block size in tokens for which two seconds without events are long
	usualPause = time.Second             // a working engine with such blocks writes to its log within this time
	gaugesOld  = 1500 * time.Millisecond // gauges older than this are replaced by this replica's own view of responses in progress
	inStep     = 8                       // this many running responses may all be just short of a block boundary
)

// work is an engine's activity at one moment.
type work struct {
	at    time.Time
	runs  bool // requests are running
	block int  // tokens per block; 0: unknown
	count int  // running requests
	done  endpoint.Progress
}

// workOf returns an engine's activity from its gauges. If they cannot be read, it uses the requests
// that have had a first token.
func workOf(book *endpoint.LoadTracker, ep *endpoint.Endpoint, now time.Time) work {
	g := ep.Gauges()
	w := work{at: g.At, runs: g.Running > 0, block: g.BlockSize, count: g.Running, done: g.Progress}
	if now.Sub(g.At) > gaugesOld {
		l := book.Load(ep, now)
		w.at, w.runs, w.done = now, l.Requests > l.Waiting, endpoint.Progress{}
	}
	return w
}

// owes reports whether an engine must have filled a block, and so written to its log, between from
// and w. Each request may compute up to a block less one token without filling a block. For
// example, any number of cached prompts with short responses produce no events. Longer responses
// are unlikely to be all in step. If the engine does not report counters, owes returns true.
func (w *work) owes(from endpoint.Progress) bool {
	if !w.done.Known || w.block <= 0 {
		return true
	}
	if !from.Known {
		return false // no earlier counters to compare with
	}
	requests := w.done.Ended - from.Ended + uint64(min(w.count, inStep))
	return w.done.Computed-from.Computed > requests*uint64(w.block)
}

// slowness is the factor by which an engine's log may pause longer: large blocks produce fewer
// events.
func (w *work) slowness() (times, of int64) {
	return int64(max(w.block, usualBlock)), usualBlock
}

// stall measures how long a log has not moved while its engine worked.
type stall struct {
	at     cluster.Position
	looked time.Time // time of the last look
	moved  time.Time // upper bound for when at was reached
	// quiet is the time until which the content is complete: the log moved after it, or the engine
	// was idle at it.
	quiet time.Time
	busy  time.Time         // since when every look has shown a working engine; zero: the last one did not
	runs  bool              // the last look shows it working, possibly before the log moved
	from  endpoint.Progress // from the first look after the log moved
	owes  bool              // it has filled a block since then
	// counts is true if the last look had counters.
	counts bool
	lasts  time.Duration
	usual  time.Duration
}

// look updates the stall with the log's position and the engine's work.
func (st *stall) look(now time.Time, at cluster.Position, w work) {
	if st.looked.IsZero() {
		st.looked = now
	}
	if at != st.at || st.moved.IsZero() {
		st.at, st.moved, st.quiet, st.busy = at, now, st.looked, time.Time{}
		st.from, st.owes = endpoint.Progress{}, false
	}
	if w.done.Known && (w.done.Computed < st.from.Computed || w.done.Ended < st.from.Ended) {
		st.from = endpoint.Progress{} // it restarted
	}
	if st.counts && !w.done.Known && !st.busy.IsZero() {
		st.busy = w.at // the page stopped arriving; continue without it
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
		st.quiet = w.at // requests came and went without necessarily filling a block
	}
	times, of := w.slowness()
	st.looked, st.runs, st.usual = now, w.runs, time.Duration(int64(usualPause)*times/of)
	st.lasts = 0
	if !st.busy.IsZero() && owes {
		st.lasts = time.Duration(int64(max(now.Sub(st.busy), 0)) * of / times)
	}
}

// stalled returns how long the logs of an engine have not moved while it worked. With several ranks
// the gauges do not show which rank works. While one rank's log moves, the others may be idle.
func stalled(ranks []*source) time.Duration {
	d := ranks[0].stall.lasts
	for _, s := range ranks[1:] {
		d = min(d, s.stall.lasts)
	}
	return d
}

// age updates the time until which an engine's content is certainly complete.
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

// behindBy returns how far the content may be behind a working engine; 0: no more than usual.
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
