package sidecar

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/trace"

	memory "github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/tracing"
)

// beginTrace begins the span of the request. Its parent is the picker's, or the proxy's.
func (x *exchange) beginTrace() {
	if t := x.s.o.Tracer; t != nil {
		x.trace = t.Begin(tracing.SpanSidecar, trace.SpanKindServer, x.r.Header)
	}
}

// endTrace ends the span of the request.
func (x *exchange) endTrace() {
	s := x.trace.Sampled()
	if s == nil {
		return
	}
	s.Set(tracing.RequestID.String(memory.PrintableName(x.r.Header.Get("X-Request-Id"))), tracing.URLPath.String(memory.PrintableName(x.r.URL.Path)), tracing.Split.Bool(x.apart))
	if x.apart && x.report.Target >= 0 {
		s.SetInt(tracing.PrefillFailures, x.report.Failed)
	}
	if x.status > 0 {
		s.SetInt(tracing.Status, x.status)
	}
	s.End()
}

// traceFailure marks the span of a request that the sidecar answers with an error.
func (x *exchange) traceFailure(status int, message string) {
	s := x.trace.Sampled()
	s.SetInt(tracing.Status, status)
	if status >= http.StatusInternalServerError {
		s.Fail(strconv.Itoa(status), message)
	}
}

// beginLeg begins the span of a request to an engine.
func (x *exchange) beginLeg(name, target string) *tracing.Span {
	span := x.trace.Sampled().StartCall(name)
	if span == nil {
		return nil
	}
	if host, port, err := net.SplitHostPort(target); err == nil {
		n, _ := strconv.Atoi(port)
		span.Set(tracing.Server.String(host), tracing.ServerPort.Int(n))
	}
	return span
}

// continueTrace sets the headers by which the engine of a leg continues the trace.
func (x *exchange) continueTrace(h http.Header, leg *tracing.Span) {
	if leg == nil {
		leg = x.trace
	}
	for _, t := range leg.Headers() {
		h.Set(t.Name, t.Value)
	}
}

// endPrefill ends the span of a prefill leg. outcome is its label in the metrics.
func endPrefill(span *tracing.Span, p *prefilled, outcome string) {
	if span == nil {
		return
	}
	span.SetString(tracing.Outcome, outcome)
	if p.status > 0 {
		span.SetInt(tracing.Status, p.status)
	}
	if !p.good() {
		why := http.StatusText(p.status)
		if p.err != nil {
			why = p.err.Error()
		}
		span.Fail(outcome, why)
	}
	span.End()
}

// endDecode ends the span of a decode leg.
func (x *exchange) endDecode(span *tracing.Span, f *fault) {
	if span == nil {
		return
	}
	switch {
	case f != nil:
		span.Fail(faultKind(f), f.Error())
	case x.status > 0:
		span.SetInt(tracing.Status, x.status)
	}
	span.End()
}

// faultKinds are the values of error.type for failed decode legs.
var faultKinds = []struct {
	err  error
	kind string
}{
	{errHead, "hang"}, {errDropped, "prefill_failed"}, {errEngine5, "engine_error"}, {errBroken, "broken"}, {errDeclined, "declined"},
	{errRefused, "refused"}, {errStale, "stale_transfer"}, {context.Canceled, "cancelled"},
}

func faultKind(f *fault) string {
	for _, k := range faultKinds {
		if errors.Is(f.err, k.err) {
			return k.kind
		}
	}
	return faultOf(f.err).String()
}
