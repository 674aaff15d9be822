package sidecar

import (
	"context"
	"errors"
	"hash/maphash"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// A prompt can crash an engine. A request that was in flight when its engine died is therefore a
// suspect, and must not reach a second engine as if nothing had happened:
//
//  1. After a 5xx response or a broken connection, watchDeath observes the engine for
//     Options.DeathWait. An engine that dies on a prompt closes its port within that time. While it
//     is observed, the prompt is sent to no engine.
//  2. If the engine lives, the request continues as after any other failure.
//  3. If it died, the request waits up to Options.ReturnWait for the engine to restart, and is
//     repeated there. A false suspicion costs this delay.
//  4. If it stays down, answered with an error and held no other prompt, the prompt is sent to no other
//     engine: the client gets status 500, which gateways do not retry.
//  5. If a vLLM engine vanished without an answer, the prompt did not cause its death: prompts are
//     computed in another process than the API server, which outlives it and answers 500. Such a
//     request is computed by another engine. Other engines are one process, so rule 4 applies.
//  6. If other prompts were in flight, most of them are bystanders. They are computed by the decode
//     engine, one at a time.

// deaths records the prompts in flight at each engine, by host and port. It is safe for concurrent
// use.
type deaths struct {
	mu   sync.Mutex
	seed maphash.Seed
	at   map[string]*inFlight
	turn chan struct{} // holds the token of the one suspect that may be computed
}

// inFlight is the state of one engine.
type inFlight struct {
	prompts map[uint64]int // requests by prompt
	failed  time.Time      // when a possible death was first seen
	lived   int            // failures in a row that the engine survived
	livedAt time.Time      // the last one
	crowd   int            // prompts in flight then
}

// deathSpan is the maximum time in which requests fail after the death of their engine.
const deathSpan = 3 * time.Second

// maxDeaths bounds the engines whose failures are kept.
const maxDeaths = 256

func newDeaths() *deaths {
	return &deaths{seed: maphash.MakeSeed(), at: map[string]*inFlight{}, turn: make(chan struct{}, 1)}
}

// key returns a hash of a request body.
func (d *deaths) key(text []byte) uint64 { return maphash.Bytes(d.seed, text) }

// enter records a request at an engine until leave.
func (d *deaths) enter(engine string, prompt uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.at[engine]
	if f == nil {
		if len(d.at) >= maxDeaths {
			for name, old := range d.at {
				if len(old.prompts) == 0 {
					delete(d.at, name)
				}
			}
		}
		f = &inFlight{prompts: map[uint64]int{}}
		d.at[engine] = f
	}
	f.prompts[prompt]++
}

// leave removes a request. If its failure may be the death of the engine, it returns the number of
// prompts that were in flight at the first such failure.
func (d *deaths) leave(engine string, prompt uint64, now time.Time, failed bool) (crowd int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.at[engine]
	if f == nil {
		return 0
	}
	if failed && (f.failed.IsZero() || now.Sub(f.failed) > deathSpan) {
		f.failed, f.crowd = now, len(f.prompts)
	}
	if f.prompts[prompt]--; f.prompts[prompt] <= 0 {
		delete(f.prompts, prompt)
	}
	if len(f.prompts) == 0 && f.failed.IsZero() {
		delete(d.at, engine)
	}
	return f.crowd
}

// An engine that has survived several failures in a row is observed for a fraction of DeathWait.
// Otherwise an engine that fails every request would delay each by the whole time.
const (
	livedOften = 3
	livedFor   = time.Minute
	livedShare = 20
)

// window returns how long an engine is observed after a failure.
func (d *deaths) window(engine string, whole time.Duration, now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.at[engine]; f != nil && f.lived >= livedOften && now.Sub(f.livedAt) < livedFor {
		return whole / livedShare
	}
	return whole
}

// observed records whether an engine survived a failure.
func (d *deaths) observed(engine string, survived bool, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.at[engine]
	switch {
	case f == nil:
	case !survived || now.Sub(f.livedAt) > livedFor:
		f.lived, f.livedAt = 0, now
	}
	if f != nil && survived {
		f.lived, f.livedAt = f.lived+1, now
	}
}

// pollEvery is the interval of health checks of a suspected engine.
const pollEvery = 50 * time.Millisecond

// signs of life of an engine.
type sign uint8

const (
	unknown sign = iota
	alive
	down // it refuses connections
	sick // its /health answers 503, like an API server without its core
)

// check requests the /health of an engine.
func (s *Server) check(ctx context.Context, base *url.URL) sign {
	ctx, cancel := context.WithTimeout(ctx, max(s.o.DeathWait, pollEvery))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("health").String(), http.NoBody)
	if err != nil {
		return unknown
	}
	resp, err := s.o.Transport.RoundTrip(r)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EHOSTUNREACH):
		return down
	case err != nil:
		return unknown
	}
	spend(resp)
	resp.Body.Close()
	if resp.StatusCode == http.StatusServiceUnavailable {
		return sick
	}
	return alive
}

// died observes an engine after a failure and reports whether it died. It returns at the first
// refused connection, otherwise after DeathWait or a fraction.
func (s *Server) died(ctx context.Context, base *url.URL) bool {
	dead := s.dies(ctx, base, s.deaths.window(base.Host, s.o.DeathWait, time.Now()))
	if ctx.Err() == nil {
		s.deaths.observed(base.Host, !dead, time.Now())
	}
	return dead
}

func (s *Server) dies(ctx context.Context, base *url.URL, window time.Duration) bool {
	limit := time.NewTimer(window)
	defer limit.Stop()
	for {
		last := s.check(ctx, base)
		if last == down {
			return true
		}
		select {
		case <-limit.C:
			last = s.check(ctx, base)
			return last == down || last == sick
		case <-ctx.Done():
			return false
		case <-time.After(pollEvery):
		}
	}
}

// returned waits for a dead engine to restart. It reports whether it did, within ReturnWait.
func (s *Server) returned(ctx context.Context, base *url.URL) bool {
	ctx, cancel := context.WithTimeout(ctx, s.o.ReturnWait)
	defer cancel()
	for {
		if s.check(ctx, base) == alive {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pollEvery):
		}
	}
}

// takeTurn waits until no other suspect is being computed, at most ReturnWait.
func (x *exchange) takeTurn() {
	limit := time.NewTimer(x.s.o.ReturnWait)
	defer limit.Stop()
	select {
	case x.s.deaths.turn <- struct{}{}:
		x.hasTurn = true
	case <-limit.C:
	case <-x.r.Context().Done():
	}
}

// endTurn lets the next suspect be computed.
func (x *exchange) endTurn() {
	if x.hasTurn {
		x.hasTurn = false
		<-x.s.deaths.turn
	}
}

// prefillBase returns the base URL of a prefill engine.
func (x *exchange) prefillBase(target string) *url.URL {
	if x.s.o.PrefillTLS {
		return &url.URL{Scheme: "https", Host: target}
	}
	return &url.URL{Scheme: "http", Host: target}
}

// judge sets the fault of a failed prefill leg to Died if its engine died.
func (x *exchange) judge(ctx context.Context, p *prefilled) {
	if !p.mayKill() || ctx.Err() != nil || !x.s.died(ctx, x.prefillBase(p.target)) {
		return
	}
	p.fault = kvtransfer.Died
	x.s.m.deaths.WithLabelValues("prefill").Inc()
}

// mayKill reports whether the failure of a leg may be the death of its engine.
func (p *prefilled) mayKill() bool {
	return p.sent && !p.ours && (p.fault == kvtransfer.Failed || p.fault == kvtransfer.Broken && !tlsError(p.err))
}

// outlive decides how a request continues after the death of the prefill engine of leg p. It
// returns the result of a repeated leg, or nil. If the request must reach no other engine,
// x.condemned is set.
func (x *exchange) outlive(p *prefilled, body kvtransfer.Pieces, set http.Header) *prefilled {
	ctx := x.r.Context()
	if x.s.returned(ctx, x.prefillBase(p.target)) {
		x.takeTurn()
		again := x.prefill(ctx, p.target, body, set)
		if again.fault == kvtransfer.NoFault {
			x.endTurn()
			return again
		}
		x.condemned = again.fault == kvtransfer.Died
		return nil
	}
	if ctx.Err() != nil {
		return nil
	}
	if p.crowd <= 1 && x.s.o.Connector.causes(p.status >= http.StatusInternalServerError) {
		x.condemned = true
		return nil
	}
	x.takeTurn()
	return nil
}

// causes reports whether the death of an engine may be caused by the only prompt in flight there.
// confessed means that the engine answered the request with an error before it died.
func (c Connector) causes(confessed bool) bool { return confessed || c == SGLang || c == TRTLLM }

// errKilled is the message for requests that were alone at an engine when it died.
const errKilled = "an engine died while it computed this prompt, so the prompt was sent to no other engine"

// condemn responds to a request that must reach no other engine. Gateways do not retry status 500.
func (x *exchange) condemn() {
	x.s.m.condemned.Inc()
	x.fail(http.StatusInternalServerError, errKilled)
}

// revive handles a request that failed before its first content at the decode engine, if the
// engine died. It reports whether the request has been responded to.
func (x *exchange) revive() bool {
	ctx := x.r.Context()
	if !x.suspect || x.revived || !x.s.died(ctx, x.s.engine) {
		return false
	}
	x.revived = true
	x.s.m.deaths.WithLabelValues("decode").Inc()
	switch {
	case x.s.returned(ctx, x.s.engine):
		x.report.Target = -1
		x.takeTurn()
		x.finish(x.decode(leg{body: x.text(), cached: -1}))
	case x.crowd > 1 || ctx.Err() != nil || !x.s.o.Connector.causes(x.confessed):
		return false
	default:
		x.condemn()
	}
	return true
}

// outliveBoth decides how a request continues after the death of the prefill engine of two
// simultaneous legs. The legs are not repeated: the decode engine may have computed a part.
func (x *exchange) outliveBoth(p *prefilled) {
	if p.crowd <= 1 && x.s.o.Connector.causes(p.status >= http.StatusInternalServerError) {
		x.condemned = true
		return
	}
	x.takeTurn()
}
