package sidecar

import (
	"context"
	"errors"
	"hash/maphash"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/vitals"
)

// A prompt can crash an engine. A request that was in flight when its engine died is therefore a
// suspect, and must not reach a second engine as if nothing had happened:
//
//  1. After a 5xx response or a broken connection, died observes the engine for Options.DeathWait. An
//     engine that dies on a prompt closes its port within that time. While it is observed, the prompt
//     is sent to no engine.
//  2. If the engine lives, the request continues as after any other failure.
//  3. If a vLLM engine vanished without an answer, the prompt did not cause its death: prompts are
//     computed in another process than the API server, which outlives it and answers 500. The same
//     holds if the engine's /health was good after the 500. Such a request waits up to
//     Options.ReturnWait for a restart, and is computed by another engine otherwise. Other engines
//     are one process, so each request in flight at their death is a suspect.
//  4. A suspect waits up to Options.SuspectWait for the engine to restart, and is repeated there. Of
//     the suspects, one at a time is computed. If the engine dies again while it computes this prompt
//     alone, the client gets status 500, which gateways do not retry. The other suspects of the first
//     death are then cleared.
//  5. Cleared suspects are computed by another engine at once. So are all suspects once the engine's
//     host has been unreachable for absentAfter: a prompt crashes a process, but does not remove a pod.
//  6. If the engine stays down, a suspect is computed by another engine, one at a time: a process that
//     does not start again in this time has probably died of something else than a prompt.
//
// A false suspicion costs a delay, and no answer.

// deaths records the prompts in flight at each engine, by host and port. It is safe for concurrent
// use.
type deaths struct {
	vitals vitals.Reader
	wait   time.Duration // see died

	mu   sync.Mutex
	seed maphash.Seed
	at   map[string]*inFlight
	turn chan struct{} // holds the token of the one suspect that may be computed
}

// inFlight is the state of one engine.
type inFlight struct {
	prompts map[uint64]int // requests by prompt
	death   *death         // the last possible one
	lived   int            // failures in a row that the engine survived
	livedAt time.Time      // the last one
}

// death is a possible death of an engine.
type death struct {
	at        time.Time     // of the first failure
	cleared   chan struct{} // closed when another prompt turns out to be the cause
	mu        sync.Mutex
	isCleared bool
	crowd     int // most prompts in flight at one of its failures
	confessed int // requests that the engine answered with 5xx before it died
}

// clear lets the suspects of a death be computed by other engines.
func (d *death) clear() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.isCleared {
		d.isCleared = true
		close(d.cleared)
	}
}

// confess adds requests that were answered with 5xx.
func (d *death) confess(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.confessed += n
}

// counts returns the prompts in flight and the requests that were answered with 5xx.
func (d *death) counts() (crowd, confessed int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.crowd, d.confessed
}

// deathSpan is the maximum time in which requests fail after the death of their engine.
const deathSpan = 3 * time.Second

// maxDeaths bounds the engines whose failures are kept.
const maxDeaths = 256

// newDeaths returns a store without deaths. After a failure, an engine is observed for up to wait.
func newDeaths(v vitals.Reader, wait time.Duration) *deaths {
	return &deaths{vitals: v, wait: wait, seed: maphash.MakeSeed(), at: map[string]*inFlight{}, turn: make(chan struct{}, 1)}
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

// leave removes a request. If its failure may be the death of the engine, it returns this death,
// otherwise nil. confessed means that the engine answered with 5xx.
func (d *deaths) leave(engine string, prompt uint64, now time.Time, failed, confessed bool) *death {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.at[engine]
	if f == nil {
		return nil
	}
	var of *death
	if failed {
		if f.death == nil || now.Sub(f.death.at) > deathSpan {
			f.death = &death{at: now, cleared: make(chan struct{})}
		}
		of = f.death
		of.mu.Lock()
		of.crowd = max(of.crowd, len(f.prompts))
		of.mu.Unlock()
		if confessed {
			of.confess(1)
		}
	}
	if f.prompts[prompt]--; f.prompts[prompt] <= 0 {
		delete(f.prompts, prompt)
	}
	if len(f.prompts) == 0 && f.death == nil {
		delete(d.at, engine)
	}
	return of
}

// restarted ends a death: later failures of the engine belong to another one.
func (d *deaths) restarted(engine string, of *death) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.at[engine]; f != nil && f.death == of {
		f.death = nil
	}
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

// Intervals of each request's health checks of a suspected engine.
const (
	pollEvery = 50 * time.Millisecond
	pollLater = time.Second // after pollSoon
	pollSoon  = 5 * time.Second
)

// check requests the /health of an engine.
func (d *deaths) check(ctx context.Context, base *url.URL) vitals.Sign {
	return d.vitals.Check(ctx, base, max(d.wait, pollEvery))
}

// died observes an engine after a failure and reports whether it died. It returns at the first
// refused connection, otherwise after the whole wait or a fraction. survived means that the engine was in
// good health after the failure, whether or not it died later.
func (d *deaths) died(ctx context.Context, base *url.URL) (dead, survived bool) {
	dead, survived = d.dies(ctx, base, d.window(base.Host, d.wait, time.Now()))
	if ctx.Err() == nil {
		d.observed(base.Host, !dead, time.Now())
	}
	return dead, survived
}

func (d *deaths) dies(ctx context.Context, base *url.URL, window time.Duration) (dead, survived bool) {
	limit := time.NewTimer(window)
	defer limit.Stop()
	for {
		last := d.check(ctx, base)
		survived = survived || last == vitals.Alive
		if last == vitals.Down {
			return true, survived
		}
		select {
		case <-limit.C:
			last = d.check(ctx, base)
			return last == vitals.Down || last == vitals.Unhealthy, survived
		case <-ctx.Done():
			return false, survived
		case <-time.After(pollEvery):
		}
	}
}

// accused reports whether a prompt may be the cause of a death. confessed means that the engine
// answered this request with 5xx before; survived, that it was in good health afterwards.
func (c Connector) accused(of *death, confessed, survived bool) bool {
	if confessed && survived {
		of.confess(-1)
		confessed = false
	}
	_, others := of.counts()
	return c.single() || confessed || others > 0
}

// single reports whether the connector's engines compute prompts in the process that answers
// requests. A prompt that crashes them breaks the connection, while vLLM answers 500.
func (c Connector) single() bool { return c == SGLang || c == TRTLLM }

// absentAfter is how long the host of a dead engine must be unreachable before its prompts are no
// longer suspected.
const absentAfter = 10 * time.Second

// fate is the state of an engine after its death.
type fate uint8

const (
	stayedDown fate = iota
	restarted
	vanished // its host is gone
	solved   // another prompt caused the death
	left     // the client disconnected
)

// awaitRestart waits for a dead engine to restart, at most limit.
func (d *deaths) awaitRestart(ctx context.Context, base *url.URL, of *death, limit time.Duration) fate {
	begun, gone := time.Now(), time.Time{}
	for {
		switch d.check(ctx, base) {
		case vitals.Alive:
			d.restarted(base.Host, of)
			return restarted
		case vitals.Absent:
			if gone.IsZero() {
				gone = time.Now()
			}
			if time.Since(gone) >= absentAfter {
				return vanished
			}
		default:
			gone = time.Time{}
		}
		pause := pollEvery
		if time.Since(begun) >= pollSoon {
			pause = pollLater
		}
		select {
		case <-of.cleared:
			return solved
		case <-ctx.Done():
			return left
		case <-time.After(pause):
		}
		if time.Since(begun) > limit {
			return stayedDown
		}
	}
}

// takeTurn waits until no other suspect is being computed. It returns false if the death has been
// cleared or the client has disconnected.
func (x *exchange) takeTurn(of *death) bool {
	if x.hasTurn {
		return true
	}
	select {
	case x.s.deaths.turn <- struct{}{}:
		x.hasTurn = true
		return true
	case <-of.cleared:
	case <-x.r.Context().Done():
	}
	return false
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
	if p.death == nil || ctx.Err() != nil {
		return
	}
	dead, survived := x.s.deaths.died(ctx, x.prefillBase(p.target))
	p.survived = survived
	if !dead {
		x.s.deaths.restarted(p.target, p.death)
		return
	}
	p.fault = kvtransfer.Died
	p.accused = x.s.o.Connector.accused(p.death, p.confesses(), survived)
	x.s.m.deaths.WithLabelValues("prefill").Inc()
}

// mayKill reports whether the failure of a leg may be the death of its engine.
func (p *prefilled) mayKill() bool {
	return p.sent && !p.ours && (p.fault == kvtransfer.Failed || p.fault == kvtransfer.Broken && !tlsError(p.err))
}

// confesses reports whether the engine answered the leg with 5xx.
func (p *prefilled) confesses() bool { return p.status >= http.StatusInternalServerError }

// maxTrials bounds how often a suspect is sent to the engine that died, while other prompts are in
// flight there.
const maxTrials = 2

// retries decides how a request continues after the prefill leg p failed, whose engine had died before
// or dies now. It reports whether the leg is to be repeated at the same engine. Otherwise x.condemned
// is set if the request must reach no other engine; if it may, and is still a suspect, it has the turn.
func (x *exchange) retries(p *prefilled) bool {
	ctx, base := x.r.Context(), x.prefillBase(p.target)
	if ctx.Err() != nil {
		return false
	}
	of, limit := p.death, x.s.o.ReturnWait
	switch {
	case p.fault == kvtransfer.Died && p.accused:
		if x.guilty(p.death) {
			x.condemned = true
			return false
		}
		x.suspected = p.death
		limit = x.s.o.SuspectWait
	case p.fault == kvtransfer.Died && x.trials >= maxTrials, p.fault == kvtransfer.Busy && x.suspected != nil:
		return false
	case p.fault == kvtransfer.Died && x.suspected == nil:
	case p.fault == kvtransfer.Died, p.fault == kvtransfer.Refused && x.suspected != nil: // it was not computed
		of, limit = x.suspected, x.s.o.SuspectWait-time.Since(x.suspected.at)
	default: // the engine has survived the prompt
		x.suspected = nil
		x.endTurn()
		return false
	}
	x.endTurn()
	end := x.s.deaths.awaitRestart(ctx, base, of, limit)
	if x.suspected == nil && x.s.o.Connector.accused(of, false, false) { // other requests have been answered with 5xx since
		x.suspected = of
		if end == stayedDown {
			end = x.s.deaths.awaitRestart(ctx, base, of, x.s.o.SuspectWait-limit)
		}
	}
	switch end {
	case restarted:
		if x.suspected != nil && !x.takeTurn(x.suspected) {
			x.suspected = nil
			return false
		}
		x.trials++
		return true
	case stayedDown:
		if x.suspected != nil {
			x.takeTurn(x.suspected)
		}
	case solved, vanished, left:
		x.suspected = nil
	}
	return false
}

// guilty reports whether a death is the second one that a suspect may have caused, and the first at
// which it was alone. It then clears the other suspects of the first one.
func (x *exchange) guilty(of *death) bool {
	if x.suspected == nil || x.suspected == of {
		return false
	}
	crowd, _ := of.counts()
	if crowd > 1 && x.trials < maxTrials {
		return false
	}
	x.suspected.clear()
	return true
}

// outlive decides how a request continues after the death of the prefill engine of leg p. It
// returns the result of a repeated leg, or nil. If the request must reach no other engine,
// x.condemned is set.
func (x *exchange) outlive(p *prefilled, body kvtransfer.Pieces, set http.Header) *prefilled {
	for x.retries(p) {
		if p = x.prefill(x.r.Context(), p.target, body, set); p.fault == kvtransfer.NoFault {
			x.suspected = nil
			x.endTurn()
			return p
		}
	}
	return nil
}

// errKilled is the message for requests that ended their engine.
const errKilled = "an engine died while it computed this prompt, so the prompt was sent to no other engine"

// condemn responds to a request that must reach no other engine. Gateways do not retry status 500.
func (x *exchange) condemn() {
	x.s.m.condemned.Inc()
	x.fail(http.StatusInternalServerError, errKilled)
}

// revive handles a request that failed with f before its first content at the decode engine, if the
// engine died. It reports whether the request has been responded to. Otherwise it returns the last
// failure, without the answer of an engine that has died.
func (x *exchange) revive(f *fault) (last *fault, done bool) {
	ctx := x.r.Context()
	for x.decodeDeath != nil && ctx.Err() == nil {
		of := x.decodeDeath
		x.decodeDeath = nil
		dead, survived := x.s.deaths.died(ctx, x.s.engine)
		if !dead {
			x.s.deaths.restarted(x.s.engine.Host, of)
			if !x.sendsAgain(f) {
				return f, false
			}
			x.s.m.retries.WithLabelValues("broken").Inc()
			if f = x.whole(); f == nil || !f.before {
				x.finish(f)
				return f, true
			}
			continue
		}
		x.s.m.deaths.WithLabelValues("decode").Inc()
		f.answer = nil
		limit, accused := x.s.o.ReturnWait, x.s.o.Connector.accused(of, x.confessed, survived)
		switch {
		case accused && x.guilty(of):
			x.condemn()
			return f, true
		case accused:
			x.suspected, limit = of, x.s.o.SuspectWait
		case x.trials >= maxTrials:
			return f, false
		}
		next, sent := x.retryDecode(of, time.Now().Add(limit))
		if !sent {
			return f, false // the gateway tries another engine
		}
		if f = next; f == nil || !f.before || x.decodeDeath == nil {
			x.decodeDeath = nil
			x.finish(f)
			return f, true
		}
	}
	return f, false
}

// sendsAgain reports, once, whether a request is sent again to the decode engine that has survived failure f:
// the connection broke. An engine that was stopped for a while closes connections that look idle to it,
// with their requests. SGLang's decode engines cannot serve whole requests.
func (x *exchange) sendsAgain(f *fault) bool {
	if x.broken || x.suspected != nil || errors.Is(f.err, errEngine5) || x.apart && x.s.o.Connector == SGLang {
		return false
	}
	x.broken = true
	x.report.Target = -1
	return true
}

// retryDecode sends the whole request to the decode engine once it has restarted. It returns false if
// that does not happen until end, or another prompt caused the engine's death.
func (x *exchange) retryDecode(of *death, end time.Time) (f *fault, sent bool) {
	for {
		x.endTurn()
		fate := x.s.deaths.awaitRestart(x.r.Context(), x.s.engine, of, time.Until(end))
		if x.suspected == nil && x.s.o.Connector.accused(of, false, false) { // other requests have been answered with 5xx since
			x.suspected = of
			if fate == stayedDown {
				end = end.Add(x.s.o.SuspectWait - x.s.o.ReturnWait)
				continue
			}
		}
		if fate != restarted {
			return nil, false
		}
		if x.suspected != nil && !x.takeTurn(x.suspected) {
			return nil, false
		}
		x.trials++
		x.report.Target = -1
		f = x.whole()
		if f == nil || !f.unsent || x.suspected == nil {
			return f, true
		}
		// The engine died again before it had the prompt.
	}
}
