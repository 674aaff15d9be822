package sidecar

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/vitals"
)

// A prefill engine frees blocks that are not read within their lease, and the decode engine then reads
// other content without an error. While a request waits, its decode engine extends the lease by
// heartbeats. If that engine, the prefill engine or this process is stopped, the lease can run out
// after the check before the leg. transferWatch therefore verifies the transfer when decode's first
// content is there, before the client gets any of it:
//
//   - First content within two thirds of the lease: no lease can have run out.
//   - The prefill engine's counter of expired requests has not grown since a time before the lease could
//     run out: the blocks were not freed.
//   - It has grown, or it restarted: the transfer may be stale.
//   - It cannot be read: the transfer is accepted only if the decode engine answered a health check
//     throughout the wait, so that it sent heartbeats, and counted no failed notification or transfer.
//
// A stale transfer stays in the decode engine's prefix cache. From then on, all requests to that engine
// get a cache salt of their own (taint), until the engine refuses connections, because a restart
// empties the cache.

// errStale is the fault of a leg whose transfer may be stale.
var errStale = errors.New("sidecar: the KV transfer may have read freed blocks")

// expiredCounter is vLLM's count of requests whose blocks were freed unread.
const expiredCounter = "vllm:nixl_num_kv_expired_reqs_total"

// failureCounters are vLLM's counts of failures at a decode engine. Heartbeats are notifications.
var failureCounters = []string{"vllm:nixl_num_failed_notifications_total", "vllm:nixl_num_failed_transfers_total"}

// transferWatch collects the evidence on one transfer.
type transferWatch struct {
	vitals vitals.Reader
	engine *url.URL // decode
	base   *url.URL // prefill
	lease  time.Duration
	now    func() time.Time
	since  time.Time // when the lease began
	cancel context.CancelFunc
	ended  chan struct{}

	// Written before ended is closed.
	before        float64
	counted       bool // before is valid
	failures      float64
	noted         bool // failures is valid
	uninterrupted bool // the decode engine answered throughout
}

// watchTransfer starts to watch the transfer of a prefill leg.
func (x *exchange) watchTransfer(p *prefilled) *transferWatch {
	ctx, cancel := context.WithCancel(x.r.Context())
	w := &transferWatch{
		vitals: x.s.deaths.vitals, engine: x.s.engine, base: x.prefillBase(p.target), lease: x.s.o.Lease, now: x.s.o.Now,
		since: p.at, cancel: cancel, ended: make(chan struct{}), uninterrupted: true,
	}
	go w.run(ctx)
	return w
}

// limit is the time after which a lease may have run out.
func (w *transferWatch) limit() time.Duration { return w.lease * 2 / 3 }

func (w *transferWatch) age() time.Duration { return w.now().Sub(w.since) }

func (w *transferWatch) run(ctx context.Context) {
	defer close(w.ended)
	every := w.lease / 6
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := w.now()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			w.uninterrupted = w.uninterrupted && w.now().Sub(last) < 3*every
			return
		case <-tick.C:
		}
		if n == 2 { // most requests have their first content by then
			w.before, w.counted = w.vitals.Sum(ctx, w.base, every, expiredCounter)
			w.counted = w.counted && w.age() < w.limit()
			if !w.counted {
				w.failures, w.noted = w.vitals.Sum(ctx, w.engine, every, failureCounters...)
				w.noted = w.noted && w.age() < w.limit()
			}
		}
		answered := w.vitals.Answers(ctx, w.engine, 2*every)
		if ctx.Err() != nil {
			continue
		}
		now := w.now()
		w.uninterrupted = w.uninterrupted && answered && now.Sub(last) < 3*every
		last = now
	}
}

// stop ends the watch.
func (w *transferWatch) stop() {
	w.cancel()
	<-w.ended
}

// stale reports whether the transfer may be stale, at decode's first content.
func (w *transferWatch) stale(ctx context.Context) bool {
	age := w.age()
	w.stop()
	if age < w.limit() {
		return false
	}
	if now, ok := w.vitals.Sum(ctx, w.base, w.lease/3, expiredCounter); w.counted && ok {
		return now != w.before // a smaller count is from another process
	}
	if now, ok := w.vitals.Sum(ctx, w.engine, w.lease/3, failureCounters...); w.noted && ok && now != w.failures {
		return true
	}
	return !w.uninterrupted
}

const keySalt = "cache_salt"

// taint makes all further requests to the decode engine use a new cache salt.
func (s *Server) taint() {
	salt := s.o.UUID()
	s.salt.Store(&salt)
}

// salted adds the cache salt to the request's body, once, if the decode engine's cache is tainted.
func (x *exchange) salted() {
	salt := x.s.salt.Load()
	if salt == nil || x.hasSalt == *salt {
		return
	}
	x.hasSalt = *salt
	own := kvtransfer.Text(x.body.Get(keySalt))
	if o, err := kvtransfer.Parse(x.body.With(kvtransfer.Edit{Key: keySalt, Value: quote(own + "/" + *salt)})); err == nil {
		x.body = o
	}
}
