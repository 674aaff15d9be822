package sidecar

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"slices"
	"sync"
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
//   - It cannot be read: the transfer is accepted only if both engines answered health checks throughout
//     the wait, so that heartbeats were sent and received, and the decode engine counted no failed
//     notification or transfer.
//
// The lease may have begun long before the prefill engine's answer arrives here, if that engine or this
// process was stopped between. leaseWatch finds a time before which it cannot have begun.
//
// A stale transfer stays in the decode engine's prefix cache. From then on, all requests to that engine
// get a cache salt of their own (taint). This ends when the engine refuses connections, because a
// restart empties the cache. Answers to earlier requests that have not begun are withheld and computed again,
// because they may have used the same blocks.

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
	uninterrupted bool // the engines answered throughout: decode, and prefill if its counter is unknown
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
		answered := w.vitals.Answers(ctx, w.engine, 2*every) && (n == 1 || w.counted || w.vitals.Answers(ctx, w.base, every))
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

// fresh ends the watch at decode's first content, and reports whether no lease can have run out.
func (w *transferWatch) fresh() bool {
	age := w.age()
	w.stop()
	return age < w.limit()
}

// stale reports whether a transfer that is not fresh may be stale.
func (w *transferWatch) stale(ctx context.Context) bool {
	if now, ok := w.vitals.Sum(ctx, w.base, w.lease/3, expiredCounter); w.counted && ok {
		return now != w.before // a smaller count is from another process
	}
	if now, ok := w.vitals.Sum(ctx, w.engine, w.lease/3, failureCounters...); w.noted && ok && now != w.failures {
		return true
	}
	return !w.uninterrupted
}

// leaseWatch observes a prefill engine while it computes a prompt. The time of the answer is not the begin
// of the lease: if the engine or this process was stopped, the answer is late. But an engine that answers a
// health check, and the prompt only a while later, had not answered the prompt when the check began.
type leaseWatch struct {
	now    func() time.Time
	while  time.Duration
	cancel context.CancelFunc
	ended  chan struct{}
	checks []answeredCheck // written before ended is closed; the first is the begin of the leg
}

type answeredCheck struct{ begun, ended time.Time }

// watchLease starts to observe the engine at target. Most legs end before the first check.
func (x *exchange) watchLease(ctx context.Context, target string) *leaseWatch {
	ctx, cancel := context.WithCancel(ctx)
	every, now := x.s.o.Lease/6, x.s.o.Now
	w := &leaseWatch{now: now, while: every / 2, cancel: cancel, ended: make(chan struct{}), checks: []answeredCheck{{now(), now()}}}
	if x.s.o.Connector != NIXL { // the leases of others are not verified
		close(w.ended)
		return w
	}
	go w.run(ctx, x.s.deaths.vitals, x.prefillBase(target), every)
	return w
}

func (w *leaseWatch) run(ctx context.Context, engine vitals.Reader, base *url.URL, every time.Duration) {
	defer close(w.ended)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if begun := w.now(); engine.Answers(ctx, base, every) {
			w.checks = append(w.checks, answeredCheck{begun, w.now()})
		}
	}
}

// stop ends the watch when the answer has begun. It returns a time before which the lease cannot have
// begun.
func (w *leaseWatch) stop() time.Time {
	at := w.now()
	w.cancel()
	<-w.ended
	for _, c := range slices.Backward(w.checks) {
		if at.Sub(c.ended) >= w.while {
			return c.begun
		}
	}
	return w.checks[0].begun
}

const keySalt = "cache_salt"

// taint makes all further requests to the decode engine use another cache salt than used, the one of the leg
// with the stale transfer. One salt serves all transfers that were stale under the one before.
func (s *Server) taint(used string) {
	current := s.salt.Load()
	if current != nil && *current != used || current == nil && used != "" { // the engine has restarted since
		return
	}
	salt := s.o.UUID()
	s.salt.CompareAndSwap(current, &salt)
}

// verifications are the transfers that are being verified. The zero value is ready.
type verifications struct {
	mu    sync.Mutex
	n     int
	ended chan struct{} // closed when n is 0 again
}

func (v *verifications) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.n++; v.n == 1 {
		v.ended = make(chan struct{})
	}
}

func (v *verifications) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.n--; v.n == 0 {
		close(v.ended)
	}
}

// wait waits until no transfer is being verified.
func (v *verifications) wait(ctx context.Context) {
	v.mu.Lock()
	n, ended := v.n, v.ended
	v.mu.Unlock()
	if n == 0 {
		return
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// misled reports whether decode's answer, of which the first content is there, may have been computed from
// wrong blocks: of a stale transfer, or of another request's that was found stale since the leg began.
func (x *exchange) misled(d *leg) bool {
	ctx := x.r.Context()
	if d.transfer == nil || d.transfer.fresh() {
		x.s.verifying.wait(ctx)
	} else {
		x.s.verifying.begin()
		defer x.s.verifying.end()
		if d.transfer.stale(ctx) {
			x.s.taint(x.hasSalt)
			return true
		}
	}
	salt := x.s.salt.Load()
	return salt != nil && *salt != x.hasSalt && !x.alone
}

// salted adds the cache salt to the request's body, once, if the decode engine's cache is tainted.
func (x *exchange) salted() {
	if salt := x.s.salt.Load(); salt != nil && x.hasSalt != *salt && !x.alone {
		x.addSalt(*salt)
	}
}

// saltedAlone adds a cache salt that no other request has: the answer is computed from no block of another one.
func (x *exchange) saltedAlone() {
	x.alone = true
	x.addSalt(x.s.o.UUID())
}

func (x *exchange) addSalt(salt string) {
	x.hasSalt = salt
	// vLLM accepts 128 characters, and few special ones.
	sum := sha256.Sum256([]byte(kvtransfer.Text(x.body.Get(keySalt)) + "/" + salt))
	if o, err := kvtransfer.Parse(x.body.With(kvtransfer.Edit{Key: keySalt, Value: quote(hex.EncodeToString(sum[:16]))})); err == nil {
		x.body = o
	}
}
