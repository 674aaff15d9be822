package sidecar

import (
	"context"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/vitals"
)

// A request may wait for minutes in the queue of its engine. Only evidence of a hang ends it, in the
// same way for streamed and other requests, split or whole. Every Options.Head, watchHead checks the
// engine:
//
//   - Its /health does not answer, several times in a row: it hangs.
//   - Its metrics page has not changed since frozenChecks checks, and none of this proxy's other
//     requests has begun or ended its answer there: it hangs.
//   - Everything else, such as an engine without a metrics page, is no evidence.
type headWatch struct {
	vitals  vitals.Reader
	engine  *url.URL
	every   time.Duration // Options.Head
	answers *atomic.Int64 // of all requests: see Server.answers

	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	state  atomic.Int32
	before vitalSigns
	frozen int // checks in a row without a change
}

// States of a headWatch.
const (
	watchWaits int32 = iota
	watchStopped
	watchCancelled
)

const (
	frozenChecks  = 2
	healthTries   = 3
	vitalsTimeout = 5 * time.Second
)

// vitalSigns are an engine's signs of progress.
type vitalSigns struct {
	page    uint64 // hash of the engine's own metrics; 0: unknown
	answers int64  // answers that began or ended, of all requests
}

// watchHead cancels a leg with errHead if its engine hangs before the first content.
func (s *Server) watchHead(ctx context.Context, cancel context.CancelCauseFunc) *headWatch {
	h := &headWatch{vitals: s.deaths.vitals, engine: s.engine, every: s.o.Head, answers: &s.answers, ctx: ctx, cancel: cancel}
	h.timer = time.AfterFunc(h.every, h.check)
	return h
}

// stop ends the watch.
func (h *headWatch) stop() {
	h.state.CompareAndSwap(watchWaits, watchStopped)
	h.timer.Stop()
}

func (h *headWatch) check() {
	if h.hangs() && h.state.CompareAndSwap(watchWaits, watchCancelled) {
		h.cancel(errHead)
		return
	}
	h.timer.Reset(h.every)
	if h.state.Load() != watchWaits || h.ctx.Err() != nil {
		h.timer.Stop()
	}
}

// hangs reports whether there is evidence that the engine hangs.
func (h *headWatch) hangs() bool {
	for try := 0; h.vitals.Hangs(h.ctx, h.engine, vitalsTimeout); try++ { // a dead engine breaks the leg itself
		if h.ctx.Err() != nil {
			return false
		}
		if try == healthTries-1 {
			return true
		}
	}
	now := vitalSigns{h.vitals.Page(h.ctx, h.engine, vitalsTimeout), h.answers.Load()}
	if now.page == 0 || now != h.before {
		h.before, h.frozen = now, 0
		return false
	}
	h.frozen++
	return h.frozen >= frozenChecks
}
