package sidecar

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"hash/maphash"
	"io"
	"net/http"
	"sync/atomic"
	"time"
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
	s      *Server
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
	maxPage       = 4 << 20
)

// vitalSigns are an engine's signs of progress.
type vitalSigns struct {
	page    uint64 // hash of the engine's own metrics; 0: unknown
	answers int64  // answers that began or ended, of all requests
}

// watchHead cancels a leg with errHead if its engine hangs before the first content.
func (s *Server) watchHead(ctx context.Context, cancel context.CancelCauseFunc) *headWatch {
	h := &headWatch{s: s, ctx: ctx, cancel: cancel}
	h.timer = time.AfterFunc(s.o.Head, h.check)
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
	h.timer.Reset(h.s.o.Head)
	if h.state.Load() != watchWaits || h.ctx.Err() != nil {
		h.timer.Stop()
	}
}

// hangs reports whether there is evidence that the engine hangs.
func (h *headWatch) hangs() bool {
	for try := 0; !h.s.responds(h.ctx); try++ {
		if h.ctx.Err() != nil {
			return false
		}
		if try == healthTries-1 {
			return true
		}
	}
	now := vitalSigns{h.s.page(h.ctx), h.s.answers.Load()}
	if now.page == 0 || now != h.before {
		h.before, h.frozen = now, 0
		return false
	}
	h.frozen++
	return h.frozen >= frozenChecks
}

// responds reports whether the engine answers a health check with any status, or fails it at once.
func (s *Server) responds(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, vitalsTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.engine.JoinPath("health").String(), http.NoBody)
	if err != nil {
		return true
	}
	resp, err := s.o.Transport.RoundTrip(r)
	if err != nil {
		return !errors.Is(err, context.DeadlineExceeded) // a dead engine breaks the leg itself
	}
	spend(resp)
	resp.Body.Close()
	return true
}

var pageSeed = maphash.MakeSeed()

// page returns a hash of the engine's own metrics, whose names have a colon. Others, such as counters
// of HTTP requests, change with every reading. It returns 0 if there are none.
func (s *Server) page(ctx context.Context) uint64 {
	ctx, cancel := context.WithTimeout(ctx, vitalsTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.engine.JoinPath("metrics").String(), http.NoBody)
	if err != nil {
		return 0
	}
	resp, err := s.o.Transport.RoundTrip(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0
	}
	var sum maphash.Hash
	sum.SetSeed(pageSeed)
	found := false
	lines := bufio.NewScanner(io.LimitReader(resp.Body, maxPage))
	lines.Buffer(make([]byte, 0, 4<<10), maxPage)
	for lines.Scan() {
		name, _, _ := bytes.Cut(lines.Bytes(), []byte{'{'})
		if bytes.HasPrefix(name, []byte{'#'}) || !bytes.Contains(name, []byte{':'}) {
			continue
		}
		found = true
		_, _ = sum.Write(lines.Bytes())
	}
	if !found || lines.Err() != nil {
		return 0
	}
	return max(sum.Sum64(), 1)
}
