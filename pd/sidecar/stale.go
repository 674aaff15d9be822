package sidecar

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
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
	s      *Server
	base   *url.URL
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
	w := &transferWatch{s: x.s, base: x.prefillBase(p.target), since: p.at, cancel: cancel, ended: make(chan struct{}), uninterrupted: true}
	go w.run(ctx)
	return w
}

// limit is the time after which a lease may have run out.
func (w *transferWatch) limit() time.Duration { return w.s.o.Lease * 2 / 3 }

func (w *transferWatch) age() time.Duration { return w.s.o.Now().Sub(w.since) }

func (w *transferWatch) run(ctx context.Context) {
	defer close(w.ended)
	every := w.s.o.Lease / 6
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := w.s.o.Now()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			w.uninterrupted = w.uninterrupted && w.s.o.Now().Sub(last) < 3*every
			return
		case <-tick.C:
		}
		if n == 2 { // most requests have their first content by then
			w.before, w.counted = w.s.sum(ctx, w.base, every, expiredCounter)
			w.counted = w.counted && w.age() < w.limit()
			if !w.counted {
				w.failures, w.noted = w.s.sum(ctx, w.s.engine, every, failureCounters...)
				w.noted = w.noted && w.age() < w.limit()
			}
		}
		answered := w.s.answersWithin(ctx, 2*every)
		if ctx.Err() != nil {
			continue
		}
		now := w.s.o.Now()
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
	if now, ok := w.s.sum(ctx, w.base, w.s.o.Lease/3, expiredCounter); w.counted && ok {
		return now != w.before // a smaller count is from another process
	}
	if now, ok := w.s.sum(ctx, w.s.engine, w.s.o.Lease/3, failureCounters...); w.noted && ok && now != w.failures {
		return true
	}
	return !w.uninterrupted
}

// answersWithin reports whether the decode engine answers a health check within a time.
func (s *Server) answersWithin(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.engine.JoinPath("health").String(), http.NoBody)
	if err != nil {
		return false
	}
	resp, err := s.o.Transport.RoundTrip(r)
	if err != nil {
		return false
	}
	spend(resp)
	resp.Body.Close()
	return true
}

// sum returns the sum of an engine's counters. ok is false if its metrics page cannot be read within the
// limit or has none of the counters.
func (s *Server) sum(ctx context.Context, base *url.URL, limit time.Duration, names ...string) (sum float64, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("metrics").String(), http.NoBody)
	if err != nil {
		return 0, false
	}
	resp, err := s.o.Transport.RoundTrip(r)
	if err != nil {
		return 0, false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, false
	}
	lines := bufio.NewScanner(io.LimitReader(resp.Body, maxPage))
	lines.Buffer(make([]byte, 0, 4<<10), maxPage)
	for lines.Scan() {
		rest := sampleOf(lines.Bytes(), names)
		if rest == nil {
			continue
		}
		fields := bytes.Fields(rest[bytes.LastIndexByte(rest, '}')+1:])
		if len(fields) == 0 {
			continue
		}
		if v, err := strconv.ParseFloat(string(fields[0]), 64); err == nil {
			sum, ok = sum+v, true
		}
	}
	return sum, ok && lines.Err() == nil
}

// sampleOf returns the line after the metric's name if the metric is one of names, otherwise nil.
func sampleOf(line []byte, names []string) []byte {
	for _, name := range names {
		rest, found := bytes.CutPrefix(line, []byte(name))
		if found && len(rest) > 0 && (rest[0] == '{' || rest[0] == ' ') {
			return rest
		}
	}
	return nil
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
