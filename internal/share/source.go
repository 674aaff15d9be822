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

// source is one event stream. mu guards the mode together with the index's content of the source: a
// writer of the content holds mu and has checked the mode. Lock mu after the group's lock for the
// source.
type source struct {
	name string // in the group's log: the visible name and the seed's suffix
	src  block.Source
	at   events.Stream
	of   *events.Model
	x    *indexer.Index

	mu   sync.Mutex
	mode plan.Mode
	head shareHead
	// tails are of the batches up to head.last, as far as they are contiguous.
	tails wire.Tails
	inc   uint64 // incarnation under which this replica reads

	// opened is the content's position when the stream was opened from its beginning, and came its
	// position since then. Within one incarnation came reaches opened.
	opened, came shareHead

	local atomic.Pointer[localDelta]
	role  atomic.Uint32 // cluster.Role
	cold  atomic.Bool   // the stream is read from its beginning, not from the log's position
	paged atomic.Bool   // its reader merges pages smaller than a block
	held  atomic.Bool   // the stream's batches are dropped until their incarnation is known
	shown shown
	in    inbox

	// Owned by the driver, under Index.mu.
	ep    *endpoint.Endpoint
	plan  *plan.Plan
	stall stall
	view  *cluster.SourceView // from the last Index.look; nil: not in the log
}

// logged returns the log's view of s.
func (s *source) logged() (v cluster.SourceView, ok bool) {
	if s.view == nil {
		return v, false
	}
	return *s.view, true
}

// shown is the published state of a source, readable at any time.
type shown struct {
	mode       atomic.Uint32 // plan.Mode
	reads      atomic.Bool   // the stream is open or being opened
	state      atomic.Uint32 // knowledge.State of the log
	behind     atomic.Uint64
	stalled    atomic.Bool  // the log does not move while its engine works
	quiet      atomic.Int64 // Unix ns until which a working engine's content is complete; 0: the engine is idle
	usual      atomic.Int64 // ns for which the log of such an engine may pause
	full       atomic.Bool  // followed since the cache was empty
	backed     atomic.Bool  // another member reads the stream too
	final      atomic.Bool  // no member has more, so waiting does not help
	reader     atomic.Pointer[string]
	reason     atomic.Pointer[string] // why the state is not better
	aside      atomic.Pointer[string] // why it is not shared
	lastChange atomic.Int64           // Unix ns of the last applied log change
}

func (s *source) isMode() plan.Mode { return plan.Mode(s.shown.mode.Load()) }

// localDelta is a decoded batch on its way through the log.
type localDelta struct {
	inc   uint64
	first uint64
	delta *block.Delta
}

// inbox collects events from the hooks of streams and of the log, which run under those locks,
// until the driver processes them.
type inbox struct {
	mu sync.Mutex
	reports
}

// reports are inputs of a plan.
type reports struct {
	connected, restarted, wiped, invalidated, paged bool
	another                                         bool   // the stream shows another incarnation
	overtaken                                       uint64 // incarnation
	answer                                          *plan.Answer
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

// report passes the reports to the source's plan. It returns whether the engine turned out to be
// another one.
func (s *source) report(now time.Duration, f plan.Facts) (another bool) {
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
	if r.invalidated {
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

// continues reports whether a batch read from a stream's beginning can belong to the same engine as
// the content: its payload matches the known one with the same number.
func (s *source) continues(u *events.Update) bool {
	if !s.cold.Load() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came = shareHead{have: true, last: u.Last}
	return !s.opened.have || u.Last != s.opened.last || u.After.Sum == s.opened.sum
}

// reached reports whether a stream read from its beginning has reached the content's position.
func (s *source) reached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.opened.have || s.came.have && s.came.last >= s.opened.last
}

// identity returns the mode and the incarnation under which this replica reads.
func (s *source) identity() (plan.Mode, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mode, s.inc
}

// rename changes the content's incarnation.
func (s *source) rename(inc uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inc = inc
}
