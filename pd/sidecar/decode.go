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
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// leg is one request to the decode engine.
type leg struct {
	body   kvtransfer.Pieces
	header http.Header // set in addition
	cached int         // of the prefill leg, to be reported instead of decode's own; -1 = leave it
	// again says that a failure before the first content is returned, not passed to
	// the client.
	again bool
	// doubted says that a refusal is returned too, as long as the engine may be asked again:
	// it may be the hand-over that it refuses.
	doubted bool
	// dropped ends the leg before its first content.
	dropped <-chan struct{}
	start   time.Time
	// gate, which may be nil, holds the answer until it is closed. late, which may be
	// nil, tells the cached tokens when decode's usage has come.
	gate <-chan struct{}
	late func() int
	// asks says that the engine may decline, since it holds too little of the prompt.
	asks bool
}

// cachedTokens returns the cached tokens to be reported, -1 for decode's own.
func (d *leg) cachedTokens() int {
	if d.cached < 0 && d.late != nil {
		d.cached, d.late = d.late(), nil
	}
	return d.cached
}

// fault is why a decode leg was not answered to its end.
type fault struct {
	err    error
	before bool // nothing was sent to the client
	unsent bool // the engine has not got the whole request
	stale  bool // the connection had been idle, and was closed as it was used again
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

var (
	errHead     = errors.New("sidecar: no content within the limit")
	errDropped  = errors.New("sidecar: the prefill leg failed")
	errEngine5  = errors.New("sidecar: the engine reports an error")
	errBroken   = errors.New("sidecar: the answer broke off")
	errDeclined = errors.New("sidecar: the engine holds too little of the prompt")
	errRefused  = errors.New("sidecar: the engine refuses the request")
)

// decode has the engine answer a leg and passes the answer on. It returns nil when
// the client has been answered, by whatever the engine said.
func (x *exchange) decode(d leg) *fault {
	d.start = time.Now()
	x.decodes++
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	head := time.AfterFunc(x.s.o.Head, func() { cancel(errHead) })
	defer head.Stop()
	if string(x.body.Get("stream")) != "true" {
		head.Stop() // such an answer comes as a whole, after any time
	}
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
	resp, err := x.s.o.Transport.RoundTrip(r)
	if err != nil {
		f := &fault{err: err, before: true, unsent: !wire.sent.Load()}
		if cause := context.Cause(ctx); cause != nil {
			f.err = cause
		} else {
			f.stale = wire.stale(d.start)
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

// wire is what is seen of a leg's way to its engine.
type wire struct{ sent, reused atomic.Bool }

// watch returns a context under which a leg is seen.
func (w *wire) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:      func(i httptrace.GotConnInfo) { w.reused.Store(i.Reused) },
		WroteRequest: func(i httptrace.WroteRequestInfo) { w.sent.Store(i.Err == nil) },
	})
}

// staleTime is how soon a connection breaks that the engine closed while it was idle.
const staleTime = time.Second

// stale reports whether a leg that broke without an answer was lost with a connection that
// its engine closed just then, as engines do after some seconds without requests.
func (w *wire) stale(start time.Time) bool { return w.reused.Load() && time.Since(start) < staleTime }

// pass passes an answer on.
func (x *exchange) pass(resp *http.Response, d *leg, head *time.Timer) *fault {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode < 300 && len(codings(resp.Header)) > 0: // it may hold what no client may see
		x.fail(http.StatusBadGateway, "the engine's answer is compressed, which it was asked not to be")
		return nil
	case resp.StatusCode >= 500 && d.again:
		spend(resp)
		return &fault{err: errEngine5, before: true}
	case (resp.StatusCode == http.StatusBadRequest || resp.StatusCode == http.StatusUnprocessableEntity) && d.doubted && x.decodes < maxAttempts:
		spend(resp)
		return &fault{err: errRefused, before: true}
	case resp.StatusCode == http.StatusOK && resp.ContentLength == 0: // engines do not answer with nothing
		return &fault{err: errBroken, before: true}
	case resp.StatusCode < 300 && kind == "text/event-stream":
		return x.passStream(resp, d, head)
	case resp.StatusCode < 300 && kind == "application/json":
		return x.passJSON(resp, d)
	}
	x.begin(resp, d, resp.ContentLength)
	_, err := io.Copy(x.prompt(resp), resp.Body)
	return x.ended(resp, err)
}

// spend reads an answer that nobody gets, so that its connection can be used again.
func spend(resp *http.Response) { _, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) }

// flushing passes on what comes when it comes.
type flushing struct{ x *exchange }

// Write implements io.Writer.
func (f flushing) Write(p []byte) (int, error) {
	n, err := f.x.w.Write(p)
	f.x.flush()
	return n, err
}

// prompt returns the client's writer; answers of unknown length are not held in buffers.
func (x *exchange) prompt(resp *http.Response) io.Writer {
	if resp.ContentLength >= 0 {
		return x.w
	}
	return flushing{x}
}

// passJSON passes an answer in one piece, with the cached tokens of the prefill leg.
func (x *exchange) passJSON(resp *http.Response, d *leg) *fault {
	text, err := x.in.ReadAll(io.LimitReader(resp.Body, x.s.o.MaxBody+1), resp.ContentLength)
	switch {
	case err != nil:
		return &fault{err: err, before: true}
	case int64(len(text)) > x.s.o.MaxBody: // a part is never taken for the whole
		x.fail(http.StatusBadGateway, "the engine's answer is too large")
		return nil
	case !kvtransfer.Whole(text): // its end was not told by HTTP, or the engine failed
		return &fault{err: errBroken, before: true}
	case d.asks && kvtransfer.Declines(text):
		return &fault{err: errDeclined, before: true}
	}
	if n := d.cachedTokens(); n >= 0 {
		text = x.api.SetCached(text, n, false)
	}
	if bytes.Contains(text, wordHandOver) {
		x.noteKept(text)
		text = x.api.StripTransfer(text, false)
	}
	x.begin(resp, d, int64(len(text)))
	_, err = x.w.Write(text)
	return x.ended(resp, err)
}

// begin writes the head of an answer. A negative length is unknown.
func (x *exchange) begin(resp *http.Response, d *leg, length int64) {
	h := x.w.Header()
	unreported(resp.Header) // engines do not report
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
	if len(x.targets) > 0 && resp.StatusCode < 300 {
		if length < 0 { // of a whole answer nobody knows when it began
			x.report.Decode = time.Since(d.start)
		}
		x.tellHandOver()
	}
	x.tellFaults()
	x.status = resp.StatusCode
	x.w.WriteHeader(resp.StatusCode)
}

// ended ends an answer whose body came to err.
func (x *exchange) ended(resp *http.Response, err error) *fault {
	for name, values := range resp.Trailer {
		x.w.Header()[name] = values
	}
	if err != nil {
		return &fault{err: err, before: false}
	}
	return nil
}

// finish answers for a leg that failed: with an error while nothing was sent, by
// breaking the connection afterwards, so that no client takes a part for the whole.
func (x *exchange) finish(f *fault) {
	switch {
	case f == nil || x.r.Context().Err() != nil:
	case !f.before:
		x.s.m.broken.Inc()
		x.flush() // so that it is seen to have begun
		panic(http.ErrAbortHandler)
	case errors.Is(f.err, errHead):
		x.fail(http.StatusGatewayTimeout, "the engine has not answered in time")
	case errors.Is(f.err, errEngine5), errors.Is(f.err, errBroken): // another decode engine may serve it
		x.s.m.unreachable.Inc()
		x.fail(http.StatusServiceUnavailable, "the engine failed before it had answered")
	default:
		x.tellFaults()
		x.s.unreachable(x.w, f.err)
	}
}
