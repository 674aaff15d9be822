package share

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/wire"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/share/plan"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// source is one event stream. mu guards the mode together with what the index holds
// of the source: whoever writes the content holds mu and has looked at the mode. It is
// taken below the lock that the group
// has for the source.
type source struct {
	name string // in the group's log: as shown, and whose block keys it is of
	src  block.Source
	at   events.Stream
	of   *events.Model
	x    *indexer.Index

	mu   sync.Mutex
	mode plan.Mode
	head shareHead
	// tails are of the batches up to head.last, as far as they came without a gap.
	tails wire.Tails
	inc   uint64 // incarnation that this replica's reader reads

	// opened is how far the content was when the stream was opened from its beginning, and
	// came how far it has come since: in one life of the engine it comes as far.
	opened, came shareHead

	local atomic.Pointer[localDelta]
	role  atomic.Uint32 // cluster.Role
	cold  atomic.Bool   // the stream is read from its beginning, not from the log's position
	paged atomic.Bool   // its reader merges pages that are smaller than a block
	held  atomic.Bool   // what the stream brings is dropped, until it is known which life of the engine it is of
	shown shown
	in    inbox

	// Of the driver, under Index.mu.
	ep    *endpoint.Endpoint
	plan  *plan.Plan
	stall stall
	view  *cluster.SourceView // as of the last Index.look; nil: the log does not know it
}

// logged is what the log knows of s.
func (s *source) logged() (v cluster.SourceView, ok bool) {
	if s.view == nil {
		return v, false
	}
	return *s.view, true
}

// shown is what others may read of a source at any time.
type shown struct {
	mode   atomic.Uint32 // plan.Mode
	reads  atomic.Bool   // the stream is open, or is being opened
	state  atomic.Uint32 // knowledge.State of what the log knows
	behind atomic.Uint64
	doubt  atomic.Bool  // the log stands still while its engine works
	quiet  atomic.Int64 // Unix ns up to which nothing can be missing of an engine that works; 0: it rests
	usual  atomic.Int64 // ns for which the log of such an engine may stand still
	full   atomic.Bool  // followed since the cache was empty
	backed atomic.Bool  // another member reads the stream too
	final  atomic.Bool  // no member knows more: waiting makes it no better
	reader atomic.Pointer[string]
	reason atomic.Pointer[string] // why nothing better is known
	aside  atomic.Pointer[string] // why it is not shared
	told   atomic.Int64           // Unix ns at which a change of the log was last applied
}

func (s *source) isMode() plan.Mode { return plan.Mode(s.shown.mode.Load()) }

// localDelta is a batch on its way through the log in its decoded form.
type localDelta struct {
	inc   uint64
	first uint64
	delta *block.Delta
}

// inbox collects what the hooks of streams and of the log report, which run while
// those are locked, until the driver looks.
type inbox struct {
	mu sync.Mutex
	reports
}

// reports are inputs of a plan.
type reports struct {
	connected, restarted, wiped, distrusted, paged bool
	another                                        bool   // life of the engine, as the stream shows
	overtaken                                      uint64 // incarnation
	answer                                         *plan.Answer
}

func (b *inbox) note(f func(*reports)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.reports)
}

func (b *inbox) take() (r reports) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, b.reports = b.reports, reports{}
	return r
}

// tell hands the reports to the source's plan. It returns whether its engine has
// turned out to be another one.
func (s *source) tell(now time.Duration, f plan.Facts) (another bool) {
	r := s.in.take()
	if r.overtaken > 0 {
		s.plan.Superseded(r.overtaken)
	}
	if r.paged {
		s.plan.Paged()
	}
	if r.restarted {
		s.plan.Restarted(r.wiped)
	}
	if r.distrusted {
		s.plan.Invalidated(now, f.Log)
	}
	if r.connected {
		s.plan.Connected()
	}
	if r.answer != nil {
		s.plan.Answer(now, *r.answer, f)
	}
	return r.another
}

// become changes the mode and empties the content.
func (s *source) become(m plan.Mode, inc uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode, s.inc, s.head = m, inc, shareHead{}
	s.tails.Reset()
	s.shown.mode.Store(uint32(m))
	s.shown.state.Store(uint32(knowledge.Approximate))
	s.shown.full.Store(false)
	s.x.Reset(s.src)
}

// continues reports whether a batch that was read from a stream's beginning can be of the
// engine that the content is of: it has the same payload as the one that was known by its number.
func (s *source) continues(u *events.Update) bool {
	if !s.cold.Load() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came = shareHead{have: true, last: u.Last}
	return !s.opened.have || u.Last != s.opened.last || u.After.Sum == s.opened.sum
}

// reached reports whether a stream that was read from its beginning has come as far as the
// content was.
func (s *source) reached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.opened.have || s.came.have && s.came.last >= s.opened.last
}

// identity returns the mode and the incarnation that this replica's reader reads.
func (s *source) identity() (plan.Mode, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mode, s.inc
}

// rename sets the incarnation under which the content goes on.
func (s *source) rename(inc uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inc = inc
}
