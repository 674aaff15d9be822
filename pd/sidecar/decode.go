package sidecar

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/bodies"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/continuation"
)

// leg is one request to the decode engine.
type leg struct {
	body   kvtransfer.Pieces
	header http.Header // additional headers
	cached int         // cached tokens of the prefill leg, reported instead of decode's; -1: keep decode's
	// again means that a failure before the first content is returned rather than forwarded to the
	// client.
	again bool
	// suspectTransfer means that a rejection is returned too while a retry is possible: the cause may be
	// the KV transfer.
	suspectTransfer bool
	// dropped cancels the leg before its first content.
	dropped <-chan struct{}
	start   time.Time
	// gate, if set, holds the response until it is closed. late, if set, returns the cached tokens
	// when decode's usage has arrived.
	gate <-chan struct{}
	late func() int
	// transfer, if set, verifies the KV transfer before the first content is forwarded.
	transfer *transferWatch
	// asks means that the engine may decline because it holds too little of the prompt.
	asks  bool
	trace *tracing.Span
}

// cachedTokens returns the cached tokens to report, -1 for decode's own.
func (d *leg) cachedTokens() int {
	if d.cached < 0 && d.late != nil {
		d.cached, d.late = d.late(), nil
	}
	return d.cached
}

// fault is why a decode leg did not complete.
type fault struct {
	err        error
	before     bool // nothing was sent to the client
	unsent     bool // the engine did not receive the whole request
	stale      bool // a reused idle connection was closed by the engine
	mayBeDeath bool // it may be the death of the engine: a broken connection, or an error other than 503
	answer     *errorAnswer
}

// errorAnswer is an engine's complete error response. It is forwarded if the engine survives.
type errorAnswer struct {
	resp *http.Response
	text []byte
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

var (
	errHead     = errors.New("sidecar: the engine hangs")
	errDropped  = errors.New("sidecar: the prefill leg failed")
	errEngine5  = errors.New("sidecar: the engine reports an error")
	errBroken   = errors.New("sidecar: the answer broke off")
	errDeclined = errors.New("sidecar: the engine holds too little of the prompt")
	errRefused  = errors.New("sidecar: the engine refuses the request")
)

// decode sends a leg to the decode engine and forwards the response. It returns nil if the client
// has received a response of any status.
func (x *exchange) decode(d leg) *fault {
	d.start = time.Now()
	x.decodes++
	x.s.deaths.enter(x.s.engine.Host, x.promptKey)
	d.trace = x.beginLeg(tracing.SpanDecode, x.s.engine.Host)
	if x.tracked() {
		d.body = continuation.AskTokens(d.body)
	}
	x.enter()
	f := x.sendDecode(d)
	x.leave(f != nil && (f.mayBeDeath || !f.before) && x.r.Context().Err() == nil, f != nil && errors.Is(f.err, errEngine5) && !d.suspectTransfer)
	x.endDecode(d.trace, f)
	kills := f != nil && f.before && f.mayBeDeath && x.r.Context().Err() == nil
	confessed := kills && errors.Is(f.err, errEngine5)
	// A failed KV transfer is no confession that concerns other requests.
	of := x.leaveDecode(kills, confessed && !d.suspectTransfer)
	if f == nil || !f.unsent { // otherwise the engine may have died of an earlier leg
		x.decodeDeath, x.confessed = of, confessed
	}
	return f
}

// leaveDecode ends the time in which the decode engine computes the request's prompt. If the engine
// may have died, it returns the death.
func (x *exchange) leaveDecode(failed, confessed bool) *death {
	if x.left == x.decodes {
		return nil
	}
	x.left = x.decodes
	return x.s.deaths.leave(x.s.engine.Host, x.promptKey, time.Now(), failed, confessed)
}

// sendDecode sends a leg and forwards the response.
func (x *exchange) sendDecode(d leg) *fault {
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	head := x.s.watchHead(ctx, cancel)
	defer head.stop()
	var wire wire
	ctx = wire.watch(ctx)
	if d.dropped != nil {
		done := make(chan struct{})
		defer close(done)
		go func() {
			select {
			case <-d.dropped:
				cancel(errDropped)
			case <-done:
			}
		}()
	}
	r := x.request(ctx, x.s.engine, d.body)
	maps.Copy(r.Header, d.header)
	x.continueTrace(r.Header, d.trace)
	resp, err := x.s.o.Transport.RoundTrip(r)
	if err != nil {
		f := &fault{err: err, before: true, unsent: !wire.sent.Load()}
		if cause := context.Cause(ctx); cause != nil {
			f.err = cause
		} else {
			if errors.Is(err, syscall.ECONNREFUSED) {
				x.s.salt.Store(nil) // the engine's cache is gone too
			}
			f.stale, f.mayBeDeath = wire.stale(d.start), !f.unsent
		}
		return f
	}
	defer resp.Body.Close()
	if d.gate != nil {
		select {
		case <-d.gate:
		case <-ctx.Done():
		}
		if cause := context.Cause(ctx); cause != nil {
			return &fault{err: cause, before: true}
		}
		if d.dropped != nil {
			select {
			case <-d.dropped:
				return &fault{err: errDropped, before: true}
			default:
			}
		}
	}
	return x.pass(resp, &d, head)
}

// wire records the state of a leg's connection.
type wire struct{ sent, reused atomic.Bool }

// watch returns a context that records the state of the connection.
func (w *wire) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:      func(i httptrace.GotConnInfo) { w.reused.Store(i.Reused) },
		WroteRequest: func(i httptrace.WroteRequestInfo) { w.sent.Store(i.Err == nil) },
	})
}

// staleTime is the maximum time in which a connection closed while idle breaks after reuse.
const staleTime = time.Second

// stale reports whether a leg failed because the engine had closed its idle connection, as engines
// do after some seconds without requests.
func (w *wire) stale(start time.Time) bool { return w.reused.Load() && time.Since(start) < staleTime }

// pass forwards a response.
func (x *exchange) pass(resp *http.Response, d *leg, head *headWatch) *fault {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode < 300 && len(codings(resp.Header)) > 0: // it may contain members that clients must not see
		x.fail(http.StatusBadGateway, "the engine's answer is compressed although the request forbids it")
		return nil
	case resp.StatusCode >= 500 && d.again:
		spend(resp)
		return &fault{err: errEngine5, before: true, mayBeDeath: resp.StatusCode != http.StatusServiceUnavailable}
	case resp.StatusCode >= 500 && resp.StatusCode != http.StatusServiceUnavailable:
		return x.holdError(resp, d)
	case (resp.StatusCode == http.StatusBadRequest || resp.StatusCode == http.StatusUnprocessableEntity) && d.suspectTransfer && x.decodes < maxAttempts:
		spend(resp)
		return &fault{err: errRefused, before: true}
	case resp.StatusCode == http.StatusOK && resp.ContentLength == 0: // engines never send empty responses
		return &fault{err: errBroken, before: true}
	case resp.StatusCode < 300 && kind == "text/event-stream":
		return x.passStream(resp, d, head)
	case resp.StatusCode < 300 && kind == "application/json":
		return x.passJSON(resp, d, head)
	}
	head.stop()
	return x.passWhole(resp, d)
}

// passWhole forwards a response unchanged.
func (x *exchange) passWhole(resp *http.Response, d *leg) *fault {
	x.begin(resp, d, resp.ContentLength)
	_, err := io.Copy(x.prompt(resp), resp.Body)
	return x.ended(resp, err)
}

// holdError reads an error response, so that it can be forwarded if the engine has not died. Larger
// ones than maxHead are forwarded at once.
func (x *exchange) holdError(resp *http.Response, d *leg) *fault {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxHead+1))
	switch {
	case err != nil:
		return &fault{err: err, before: true, mayBeDeath: true}
	case len(text) > maxHead:
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(text), resp.Body))
		return x.passWhole(resp, d)
	}
	return &fault{err: errEngine5, before: true, mayBeDeath: true, answer: &errorAnswer{resp, text}}
}

// spend drains a discarded response, so that its connection can be reused.
func spend(resp *http.Response) { _, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) }

// flushing forwards data as soon as it arrives.
type flushing struct{ x *exchange }

// Write implements io.Writer.
func (f flushing) Write(p []byte) (int, error) {
	n, err := f.x.w.Write(p)
	f.x.flush()
	return n, err
}

// prompt returns the client's writer. Responses of unknown length are not buffered.
func (x *exchange) prompt(resp *http.Response) io.Writer {
	if resp.ContentLength >= 0 {
		return x.w
	}
	return flushing{x}
}

// passJSON forwards a non-streamed response with the prefill leg's cached tokens.
func (x *exchange) passJSON(resp *http.Response, d *leg, head *headWatch) *fault {
	text, err := x.in.ReadAll(io.LimitReader(resp.Body, x.s.o.MaxBody+1), resp.ContentLength)
	switch {
	case err != nil && head.state.Load() == watchCancelled:
		return &fault{err: errHead, before: true}
	case err != nil:
		return &fault{err: err, before: true, mayBeDeath: !errors.Is(err, bodies.ErrMemory)}
	case int64(len(text)) > x.s.o.MaxBody: // never forward a truncated response
		x.fail(http.StatusBadGateway, "the engine's answer is too large")
		return nil
	case !kvtransfer.Whole(text): // truncated without an HTTP error, or the engine failed
		return &fault{err: errBroken, before: true}
	case d.asks && kvtransfer.Declines(text):
		return &fault{err: errDeclined, before: true}
	case x.misled(d):
		return &fault{err: errStale, before: true}
	}
	if n := d.cachedTokens(); n >= 0 {
		text = x.api.SetCached(text, n, false)
	}
	if bytes.Contains(text, wordKVTransfer) {
		x.noteKept(text)
		text = x.api.StripTransfer(text, false)
	}
	x.begin(resp, d, int64(len(text)))
	_, err = x.w.Write(text)
	return x.ended(resp, err)
}

// begin writes the response header. A negative length is unknown.
func (x *exchange) begin(resp *http.Response, d *leg, length int64) {
	h := x.w.Header()
	unreported(resp.Header) // engines do not send these
	dropHops(resp.Header)
	for name, values := range resp.Header {
		h[name] = values
	}
	h.Del("Content-Length")
	if length >= 0 && len(resp.Trailer) == 0 {
		h["Content-Length"] = []string{itoa(length)}
	}
	for name := range resp.Trailer {
		h.Add("Trailer", name)
	}
	if x.named && resp.StatusCode < 300 {
		if length < 0 { // the start of a non-streamed answer is unknown
			x.report.Decode = time.Since(d.start)
		}
		x.reportKVTransfer()
	}
	x.reportFaults()
	x.status = resp.StatusCode
	x.s.answers.Add(1)
	if length < 0 {
		d.trace.Event(tracing.EventFirstToken)
	}
	x.leaveDecode(false, false)
	x.endTurn()
	x.w.WriteHeader(resp.StatusCode)
}

// ended ends a response whose body ended with err.
func (x *exchange) ended(resp *http.Response, err error) *fault {
	x.s.answers.Add(1)
	for name, values := range resp.Trailer {
		x.w.Header()[name] = values
	}
	if err != nil {
		return &fault{err: err, before: false}
	}
	return nil
}

// finish handles a failed leg: with an error response if nothing was sent, otherwise by breaking
// the connection, so that no client accepts a truncated response.
func (x *exchange) finish(f *fault) {
	if f != nil && f.before && x.r.Context().Err() == nil {
		var done bool
		if f, done = x.revive(f); done {
			return
		}
	}
	switch {
	case f == nil || x.r.Context().Err() != nil:
	case f.answer != nil:
		x.begin(f.answer.resp, &leg{cached: -1}, int64(len(f.answer.text)))
		_, _ = x.w.Write(f.answer.text) // the client may have disconnected
	case !f.before:
		x.s.m.broken.Inc()
		x.notContinued("")
		x.flush() // so that the client sees that it has begun
		panic(http.ErrAbortHandler)
	case errors.Is(f.err, errHead):
		x.fail(http.StatusGatewayTimeout, "the engine hangs: neither its answers nor its metrics make progress")
	case errors.Is(f.err, errEngine5), errors.Is(f.err, errBroken): // another decode engine may serve it
		x.s.m.unreachable.Inc()
		x.fail(http.StatusServiceUnavailable, "the engine failed before it answered")
	default:
		x.reportFaults()
		x.s.unreachable(x.w, f.err)
	}
}
