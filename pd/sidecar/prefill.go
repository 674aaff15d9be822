package sidecar

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/bodies"
)

// maxAttempts bounds the prefill legs and the decode legs of a request.
const maxAttempts = 2

// prefilled is the result of a prefill leg.
type prefilled struct {
	target string
	status int
	header http.Header
	text   []byte            // response body
	answer kvtransfer.Object // parsed body of a 2xx response
	at     time.Time         // before which the lease cannot have begun
	took   time.Duration
	fault  kvtransfer.Fault // why there is no usable response
	err    error            // connection error, if any
	// rejected: the engine rejected the request itself, as decode would.
	rejected bool
	stale    bool   // see fault
	sent     bool   // the engine received the whole request
	ours     bool   // cancelled here or by the client: no evidence about the engine
	death    *death // the engine may have died of the leg
	accused  bool   // the prompt may be the cause
	survived bool   // the engine was in good health after the failure
}

// good reports whether there is a usable response.
func (p *prefilled) good() bool { return p.fault == kvtransfer.NoFault && !p.rejected }

// prefill lets target compute the prompt of body.
func (x *exchange) prefill(ctx context.Context, target string, body kvtransfer.Pieces, set http.Header) *prefilled {
	start := time.Now()
	x.s.deaths.enter(target, x.promptKey)
	span := x.beginLeg(tracing.SpanPrefill, target)
	limited, cancel := context.WithTimeout(ctx, x.s.o.Prefill)
	defer cancel()
	p := x.askPrefill(limited, span, target, body, set)
	if p.stale && ctx.Err() == nil {
		if again := x.askPrefill(limited, span, target, body, set); again.fault == kvtransfer.NoFault { // otherwise the first result counts
			p = again
		}
	}
	p.target = target
	p.ours = p.fault != kvtransfer.NoFault && ctx.Err() != nil
	p.death = x.s.deaths.leave(target, x.promptKey, time.Now(), p.mayKill(), p.mayKill() && p.confesses())
	x.judge(ctx, p)
	label := p.fault.String()
	switch {
	case p.good():
		label = "ok"
		p.took = time.Since(start)
		x.s.m.seconds.Observe(p.took.Seconds())
	case p.rejected:
		label = "rejected"
	case p.ours:
		label = "cancelled"
	}
	x.s.m.prefills.WithLabelValues(label).Inc()
	endPrefill(span, p, label)
	x.s.complainOf(p)
	if !p.good() {
		x.s.o.Log.Debug("prefill leg", "target", target, "status", p.status, "outcome", label)
	}
	return p
}

func (x *exchange) askPrefill(ctx context.Context, span *tracing.Span, target string, body kvtransfer.Pieces, set http.Header) *prefilled {
	var wire wire
	start, ctx := time.Now(), wire.watch(ctx)
	lease := x.watchLease(ctx, target)
	defer lease.stop()
	r := x.request(ctx, x.prefillBase(target), body)
	x.continueTrace(r.Header, span)
	r.Host = ""
	for name, values := range set {
		r.Header[name] = values
	}
	resp, err := x.s.o.Transport.RoundTrip(r)
	if err != nil {
		return &prefilled{fault: faultOf(err), err: err, stale: wire.stale(start), sent: wire.sent.Load()}
	}
	defer resp.Body.Close()
	p := &prefilled{status: resp.StatusCode, header: resp.Header, at: lease.stop(), sent: true}
	p.text, err = x.in.ReadAll(io.LimitReader(resp.Body, x.s.o.MaxBody), resp.ContentLength)
	switch {
	case err != nil:
		p.fault, p.err = faultOf(err), err
	case p.status == http.StatusTooManyRequests || p.status == http.StatusRequestTimeout || p.status == http.StatusServiceUnavailable:
		p.fault = kvtransfer.Busy
	case p.status >= 500:
		p.fault = kvtransfer.Failed
	case p.status >= 400:
		p.rejected = true
	case p.status < 200 || p.status > 299: // redirects are not followed and say nothing about the request
		p.fault = kvtransfer.Garbage
	default:
		if p.answer, err = kvtransfer.Parse(p.text); err != nil {
			p.fault = kvtransfer.Garbage
		}
	}
	return p
}

// faultOf classifies the error of a leg.
func faultOf(err error) kvtransfer.Fault {
	var dial *net.OpError
	var timeout net.Error
	switch {
	case errors.Is(err, bodies.ErrMemory): // a local condition
		return kvtransfer.Busy
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return kvtransfer.Timeout
	case errors.As(err, &dial) && dial.Op == "dial":
		return kvtransfer.Refused
	}
	return kvtransfer.Broken
}

// serially tries the targets in order until one responds or rejects the request. It returns nil if
// none does, or the client has disconnected.
func (x *exchange) serially(body kvtransfer.Pieces) *prefilled {
	for i, target := range x.targets[:min(maxAttempts, len(x.targets))] {
		if x.r.Context().Err() != nil {
			return nil
		}
		if i > 0 && !x.s.o.NoFallback && !x.s.budget.Take() { // the decode engine can serve it alone
			x.s.m.unbudgeted.Inc()
			return nil
		}
		p := x.prefill(x.r.Context(), target, body, nil)
		if p.fault == kvtransfer.NoFault {
			x.report.Target, x.report.Prefill = x.place(i), p.took
			return p
		}
		x.report.Failed++
		x.blame(i, p)
		if p.fault != kvtransfer.Died {
			continue
		}
		if p = x.outlive(p, body, nil); p != nil {
			x.report.Target, x.report.Prefill = x.place(i), p.took
		}
		return p
	}
	return nil
}

// blame records a failed leg to target i in the report for the picker.
func (x *exchange) blame(i int, p *prefilled) {
	if p.fault != kvtransfer.NoFault && !p.ours {
		x.report.Faults.Add(x.place(i), p.fault)
	}
}

// place returns the position of target i in the request's list.
func (x *exchange) place(i int) int { return x.places[i] }
