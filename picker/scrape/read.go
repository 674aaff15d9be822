package scrape

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// downAfter is the number of consecutive refused connections after which an endpoint is down.
const downAfter = 2

var (
	errTooLarge = errors.New("scrape: the page is too large")
	errJSON     = fmt.Errorf("%w: it is JSON", ErrNoGauges)
)

// otherPath is the location of TensorRT-LLM's Prometheus page. Its /metrics is JSON, and reading
// that consumes data meant for other readers.
const otherPath = "/prometheus/metrics"

// usualEvery: after this many consecutive failures at otherPath, the usual path is tried once.
const usualEvery = 16

// statusError is a status other than 200.
type statusError int

func (s statusError) Error() string { return fmt.Sprintf("scrape: answer %d", int(s)) }

// newRequests returns the request for an endpoint's page and, unless the endpoint or the options
// configure a path, a second one for otherPath.
func (o *Options) newRequests(ep *endpoint.Endpoint) (usual, other *http.Request, err error) {
	if ep.Spec.Metrics != "" {
		usual, err = newRequest(ep.Spec.Metrics)
		return usual, nil, err
	}
	base := o.Scheme + "://" + ep.Address
	if usual, err = newRequest(base + o.Path); err != nil || o.Path != defaultPath {
		return usual, nil, err
	}
	other, err = newRequest(base + otherPath)
	return usual, other, err
}

func newRequest(address string) (*http.Request, error) {
	r, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	r.Header.Set("Accept", "text/plain;version=0.0.4")
	r.Header.Set("User-Agent", "grapevine")
	if u := r.URL.User; u != nil {
		password, _ := u.Password()
		r.SetBasicAuth(u.Username(), password)
		r.URL.User = nil
	}
	return r, nil
}

// read performs one reading on its own goroutine.
func (p *Poller) read(t *target, ep *endpoint.Endpoint, start time.Time) {
	defer p.readings.Done()
	ctx, cancel := context.WithTimeout(t.ctx, p.opts.Timeout)
	page, at, err := p.fetch(ctx, t, ep)
	cancel()
	if err == nil {
		g := page.Sample(at)
		old := ep.Gauges()
		if old.LoRA.Equal(g.LoRA) {
			g.LoRA = old.LoRA
		}
		ep.SetGauges(g)
		if p.opts.OnRestart != nil && restarted(old.Started, g.Started) {
			p.opts.OnRestart(ep)
		}
		if p.opts.OnPage != nil {
			p.opts.OnPage(ep, page)
		}
	}
	p.finish(t, start, at, outcome{page, err})
}

// restarted reports whether a process started after another one. Only a later start counts, because
// several processes may share an address.
func restarted(before, after time.Time) bool {
	return !before.IsZero() && after.Sub(before) >= time.Second
}

// fetch gets and scans a page. at is when the response began.
func (p *Poller) fetch(ctx context.Context, t *target, ep *endpoint.Endpoint) (page Page, at time.Time, err error) {
	resp, err := t.transport.RoundTrip(t.request.WithContext(ctx))
	if err != nil {
		return page, at, err
	}
	defer resp.Body.Close()
	at = p.opts.Now()
	if resp.StatusCode != http.StatusOK {
		_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // keeps the connection if the body is short
		return page, at, statusError(resp.StatusCode)
	}
	s := p.scanners.get()
	defer p.scanners.put(s)
	page, err = p.opts.Dialects().Read(s, &bounded{r: resp.Body, left: p.opts.MaxPage}, ep)
	if errors.Is(err, ErrNoGauges) && strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		err = errJSON
	}
	return page, at, err
}

// turn switches the next reading to the other path immediately if the usual path holds JSON. It
// switches back occasionally if the other path fails too, since the engine may have been replaced.
// It reports whether err does not count as a failure.
func (t *target) turn(err error) bool {
	var status statusError
	if t.spare == nil {
		return false
	}
	if t.onOther {
		if !errors.As(err, &status) || (t.status.Failures+1)%usualEvery != 0 {
			return false
		}
	} else if !errors.Is(err, errJSON) {
		return false
	}
	t.again = !t.onOther && t.status.Failures == 0
	t.request, t.spare, t.onOther = t.spare, t.request, !t.onOther
	return t.again
}

// bounded is a reader that fails after a number of bytes.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(buf []byte) (int, error) {
	n, err := b.r.Read(buf)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// finish records the result and schedules the next reading.
func (p *Poller) finish(t *target, start, at time.Time, o outcome) {
	end := p.opts.Now()
	p.mu.Lock()
	waiting := t.waiting
	t.waiting = nil
	t.inFlight = false
	gone, ep := t.ctx.Err() != nil, t.ep
	var r Reading
	if !gone {
		p.note(t, at, end.Sub(start), o)
		p.plan(t, start, end)
		r = t.reading(end, o)
		if r.Answered {
			r.Rest = max(t.due.Sub(end)-2*p.opts.Slow, 0)
		}
	}
	lines := p.lines.Take()
	p.mu.Unlock()
	lines.Write(p.opts.Log)
	if !gone && p.opts.OnRead != nil {
		p.opts.OnRead(ep, r)
	}
	if gone && o.err != nil {
		o.err = ErrNotPolled
	} else {
		p.metrics.read(o, end.Sub(start))
	}
	for _, ch := range waiting {
		ch <- o
	}
}

// note updates a target's status and logs changes.
func (p *Poller) note(t *target, at time.Time, took time.Duration, o outcome) {
	s := &t.status
	s.Took = took
	if t.unanswered++; answered(o.err) {
		t.unanswered = 0
	}
	if o.err == nil {
		if s.Failures > 0 {
			p.lines.Info("engine metrics read again", "endpoint", t.ep.Address, "failures", s.Failures)
		}
		s.State, s.Failures, s.Error = StateOK, 0, ""
		s.At, s.Page, s.Bytes = at, o.page, o.page.Bytes
		p.mark(t, false)
		return
	}
	if t.turn(o.err) {
		return
	}
	var status statusError
	if t.onOther && errors.As(o.err, &status) {
		o.err = fmt.Errorf("%w at %s, and %s is JSON: trtllm-serve has the page with return_perf_metrics", o.err, otherPath, p.opts.Path)
	}
	s.State, s.Fast, s.Error = StateFailing, false, o.err.Error()
	if s.Failures++; s.Failures == downAfter {
		p.lines.Warn("engine metrics cannot be read, load is estimated without them",
			"endpoint", t.ep.Address, "cause", causeOf(o.err), "error", o.err)
	}
	switch {
	case answered(o.err):
		p.mark(t, false)
	case t.refused(o.err):
		p.mark(t, true)
	}
}

// answered reports whether the result proves that a server responded.
func answered(err error) bool {
	c := causeOf(err)
	return c != causeDial && c != causeTimeout && c != causeBroken
}

// refused reports whether the endpoint itself has repeatedly refused connections.
func (t *target) refused(err error) bool {
	return causeOf(err) == causeDial && t.status.Failures >= downAfter && t.request.URL.Host == t.ep.Address
}

// reading returns the result for OnRead.
func (t *target) reading(at time.Time, o outcome) Reading {
	r := Reading{At: at, Answered: answered(o.err), Refused: t.refused(o.err)}
	if o.err == nil {
		r.Page = &o.page
	}
	return r
}

// mark marks an endpoint as down, or reverts its own earlier mark.
func (p *Poller) mark(t *target, down bool) {
	if p.opts.OnRead == nil && down != t.lastDown {
		t.lastDown = down
		t.ep.SetDown(down)
	}
}

// causeOf classifies a reading's error.
func causeOf(err error) string {
	var status statusError
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case err == nil:
		return causeNone
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return causeTimeout
	case errors.Is(err, errTooLarge):
		return causeTooLarge
	case errors.Is(err, ErrNoGauges):
		return causeNoGauges
	case errors.As(err, &status):
		return causeStatus
	case errors.As(err, &op) && op.Op == "dial", errors.As(err, &dns):
		return causeDial
	default:
		return causeBroken
	}
}
