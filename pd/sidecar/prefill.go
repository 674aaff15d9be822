package sidecar

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/grapevine-epp/grapevine/internal/jsonedit"
)

// maxAttempts bounds the prefill legs of one request.
const maxAttempts = 2

// prefilled is what a prefill leg came to.
type prefilled struct {
	status int
	header http.Header
	text   []byte          // the answer
	answer jsonedit.Object // of a status of 2xx
	at     time.Time       // when the answer began: the lease may run from then on
	took   time.Duration
	fault  string // why there is no answer to use; "" = there is one
}

// rejected reports whether the engine found the request itself wrong: the decode
// engine would say the same of it.
func (p *prefilled) rejected() bool { return p.fault == faultRejected }

// Faults of prefill legs, as labels.
const (
	faultRefused  = "refused"
	faultTimeout  = "timeout"
	faultBroken   = "broken"
	faultStatus   = "status_5xx"
	faultBusy     = "busy"
	faultRejected = "rejected"
	faultGarbage  = "garbage"
)

// prefill has target compute the prompt of body.
func (x *exchange) prefill(ctx context.Context, target string, body []byte, set http.Header) *prefilled {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, x.s.o.Prefill)
	defer cancel()
	p := x.askPrefill(ctx, target, body, set)
	label := p.fault
	if label == "" {
		label = "ok"
		p.took = time.Since(start)
		x.s.m.seconds.Observe(p.took.Seconds())
	}
	x.s.m.prefills.WithLabelValues(label).Inc()
	if p.fault != "" {
		x.s.o.Log.Debug("prefill leg", "target", target, "status", p.status, "fault", p.fault)
	}
	return p
}

func (x *exchange) askPrefill(ctx context.Context, target string, body []byte, set http.Header) *prefilled {
	base := &url.URL{Scheme: "http", Host: target}
	if x.s.o.PrefillTLS {
		base.Scheme = "https"
	}
	r := x.request(ctx, base, body)
	r.Host = ""
	for name, values := range set {
		r.Header[name] = values
	}
	resp, err := x.s.o.Transport.RoundTrip(r)
	if err != nil {
		return &prefilled{fault: faultOf(err)}
	}
	defer resp.Body.Close()
	p := &prefilled{status: resp.StatusCode, header: resp.Header, at: x.s.o.Now()}
	p.text, err = io.ReadAll(io.LimitReader(resp.Body, x.s.o.MaxBody))
	switch {
	case err != nil:
		p.fault = faultOf(err)
	case p.status == http.StatusTooManyRequests || p.status == http.StatusRequestTimeout:
		p.fault = faultBusy
	case p.status >= 500:
		p.fault = faultStatus
	case p.status < 200 || p.status > 299:
		p.fault = faultRejected
	default:
		if p.answer, err = jsonedit.Parse(p.text); err != nil {
			p.fault = faultGarbage
		}
	}
	return p
}

// faultOf names why a leg broke.
func faultOf(err error) string {
	var dial *net.OpError
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return faultTimeout
	case errors.As(err, &dial) && dial.Op == "dial":
		return faultRefused
	}
	return faultBroken
}

// serially tries the targets in order until one answers or finds the request wrong.
// It returns nil when none does, or the client has left.
func (x *exchange) serially(body []byte) *prefilled {
	for i, target := range x.targets[:min(maxAttempts, len(x.targets))] {
		if x.r.Context().Err() != nil {
			return nil
		}
		if p := x.prefill(x.r.Context(), target, body, nil); p.fault == "" || p.rejected() {
			x.report.Target, x.report.Prefill = i, p.took
			return p
		}
		x.report.Failed++
	}
	return nil
}
