package tracing

import (
	"context"
	"log/slog"
	"strings"

	"go.opentelemetry.io/contrib/propagators/b3"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Getter provides header values by lower-case name. Get returns "" for an absent header.
type Getter interface {
	Get(name string) string
}

// Header is a header to set on a request that continues a trace.
type Header struct{ Name, Value string }

// formats is the set of header formats in which traces arrive.
type formats uint8

const (
	formatW3C formats = 1 << iota
	formatB3          // single or several headers
)

// formatsOf reads OTEL_PROPAGATORS. Without it W3C and B3 headers are accepted.
func formatsOf(names string, log *slog.Logger) (f formats) {
	if names == "" {
		return formatW3C | formatB3
	}
	var unknown []string
	for name := range strings.SplitSeq(names, ",") {
		switch strings.TrimSpace(name) {
		case "tracecontext":
			f |= formatW3C
		case "b3", "b3multi":
			f |= formatB3
		case "baggage", "none": // baggage passes through unchanged
		default:
			unknown = append(unknown, name)
		}
	}
	if unknown != nil {
		log.Warn("unsupported formats in OTEL_PROPAGATORS", "formats", unknown, "supported", "tracecontext, b3, b3multi, baggage, none")
	}
	return f
}

// Names of headers.
const (
	HeaderTraceparent = "traceparent"
	HeaderTracestate  = "tracestate"
	headerB3          = "b3"
	headerB3Trace     = "x-b3-traceid"
)

var (
	w3c      = propagation.TraceContext{}
	b3Single = b3.New(b3.WithInjectEncoding(b3.B3SingleHeader))
	b3Multi  = b3.New(b3.WithInjectEncoding(b3.B3MultipleHeader))
)

// extract returns the remote parent in headers, and the B3 propagator that writes the format in
// which it arrived, nil for W3C. W3C takes precedence.
func (f formats) extract(from Getter) (sc trace.SpanContext, form propagation.TextMapPropagator) {
	if f&formatW3C != 0 && from.Get(HeaderTraceparent) != "" {
		if sc = extract(w3c, from); sc.IsValid() {
			return sc, nil
		}
	}
	if f&formatB3 == 0 {
		return trace.SpanContext{}, nil
	}
	switch {
	case from.Get(headerB3) != "":
		return extract(b3Single, from), b3Single
	case from.Get(headerB3Trace) != "":
		return extract(b3Multi, from), b3Multi
	}
	return trace.SpanContext{}, nil
}

func extract(p propagation.TextMapPropagator, from Getter) trace.SpanContext {
	return trace.SpanContextFromContext(p.Extract(context.Background(), reading{from}))
}

// reading is a carrier that is only read.
type reading struct{ Getter }

// Set completes the carrier of a propagator.
func (reading) Set(string, string) {}

// Keys completes the carrier of a propagator.
func (reading) Keys() []string { return nil }

// writing is a carrier that collects headers.
type writing struct{ list []Header }

// Get completes the carrier of a propagator.
func (*writing) Get(string) string { return "" }

// Set completes the carrier of a propagator.
func (w *writing) Set(name, value string) {
	w.list = append(w.list, Header{strings.ToLower(name), value})
}

// Keys completes the carrier of a propagator.
func (*writing) Keys() []string { return nil }
