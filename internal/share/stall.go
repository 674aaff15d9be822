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
)

// work is what is known of an engine's work at a moment.
type work struct {
	at    time.Time
	runs  bool // requests are being answered
	block int  // tokens of a block; 0: not known
}

// workOf returns what an engine's gauges say of its work. Of one whose gauges cannot be
// read the replicas know which of their requests have had a first token.
func workOf(book *endpoint.Book, ep *endpoint.Endpoint, now time.Time) work {
	g := ep.Gauges()
	w := work{at: g.At, runs: g.Running > 0, block: g.BlockSize}
	if now.Sub(g.At) > gaugesOld {
		l := book.Load(ep, now)
		w.at, w.runs = now, l.Requests > l.Waiting
	}
	return w
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
	busy  time.Time // since when every look at the engine shows it at work; zero: the last shows none
	runs  bool      // the last look shows it at work, be it of before the log moved
	lasts time.Duration
	usual time.Duration
}

// look takes in the log's position and the engine's work.
func (st *stall) look(now time.Time, at cluster.Position, w work) {
	if st.looked.IsZero() {
		st.looked = now
	}
	if at != st.at || st.moved.IsZero() {
		st.at, st.moved, st.quiet, st.busy = at, now, st.looked, time.Time{}
	}
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
	}
	times, of := w.slowness()
	st.looked, st.runs, st.usual = now, w.runs, time.Duration(int64(usualPause)*times/of)
	st.lasts = 0
	if !st.busy.IsZero() {
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
