package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Span is a span of a request. A nil Span records nothing: all methods accept it, return nil, and
// allocate nothing. A Span is safe for concurrent use.
type Span struct {
	tracer *Tracer
	ctx    context.Context
	span   trace.Span
	form   propagation.TextMapPropagator // B3 format in which the trace arrived; nil: none
	silent bool                          // the headers of the request already say that it is not sampled
}

// Begin begins the span of a request that arrived with these headers, the first of which that names
// a parent counts. It returns nil if tracing is off. A request that is not sampled gets a span that
// records nothing but has headers: see Sampled and Headers.
func (t *Tracer) Begin(name string, kind trace.SpanKind, from ...Getter) *Span {
	if t == nil {
		return nil
	}
	s := &Span{tracer: t}
	var parent trace.SpanContext
	last := 0
	for i, h := range from {
		if parent, s.form = t.formats.extract(h); parent.IsValid() {
			last = i
			break
		}
	}
	ctx := context.Background()
	if parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	s.ctx, s.span = t.tracer.Start(ctx, name, trace.WithSpanKind(kind))
	s.silent = parent.IsValid() && last == len(from)-1 && !parent.IsSampled() && !s.span.SpanContext().IsSampled()
	return s
}

// Sampled returns the span if it is recorded, otherwise nil. Children of nil cost nothing.
func (s *Span) Sampled() *Span {
	if s == nil || !s.span.IsRecording() {
		return nil
	}
	return s
}

// Headers returns the headers by which the next server continues the trace: traceparent, tracestate
// if there is one, and B3 headers if the request arrived with them. It returns none if the last
// headers given to Begin already say that the trace is not sampled.
func (s *Span) Headers() []Header {
	if s == nil || s.silent {
		return nil
	}
	var w writing
	w3c.Inject(s.ctx, &w)
	if s.form != nil {
		s.form.Inject(s.ctx, &w)
	}
	return w.list
}

// Start begins a child.
func (s *Span) Start(name string) *Span {
	if s == nil {
		return nil
	}
	return s.child(name, trace.SpanKindInternal)
}

// StartNamed begins a child with one attribute.
func (s *Span) StartNamed(name string, key attribute.Key, value string) *Span {
	if s == nil {
		return nil
	}
	c := s.child(name, trace.SpanKindInternal)
	c.span.SetAttributes(key.String(value))
	return c
}

// StartCall begins a child for a request to another server.
func (s *Span) StartCall(name string) *Span {
	if s == nil {
		return nil
	}
	return s.child(name, trace.SpanKindClient)
}

func (s *Span) child(name string, kind trace.SpanKind) *Span {
	c := &Span{tracer: s.tracer, form: s.form, silent: s.silent}
	c.ctx, c.span = s.tracer.tracer.Start(s.ctx, name, trace.WithSpanKind(kind))
	return c
}

// Set sets attributes. Callers check for nil first if the arguments cost something.
func (s *Span) Set(attributes ...attribute.KeyValue) {
	if s != nil {
		s.span.SetAttributes(attributes...)
	}
}

// SetInt sets an attribute.
func (s *Span) SetInt(key attribute.Key, value int) {
	if s != nil {
		s.span.SetAttributes(key.Int(value))
	}
}

// SetString sets an attribute.
func (s *Span) SetString(key attribute.Key, value string) {
	if s != nil {
		s.span.SetAttributes(key.String(value))
	}
}

// Event adds an event.
func (s *Span) Event(name string, attributes ...attribute.KeyValue) {
	if s != nil {
		s.span.AddEvent(name, trace.WithAttributes(attributes...))
	}
}

// Fail marks the span as failed. kind is a constant of a small set, for error.type.
func (s *Span) Fail(kind, description string) {
	if s == nil {
		return
	}
	s.span.SetAttributes(ErrorType.String(kind))
	s.span.SetStatus(codes.Error, description)
}

// End ends the span. Only the first call has an effect.
func (s *Span) End() {
	if s != nil {
		s.span.End()
	}
}

// TraceID returns the id of the span's trace in hexadecimal, "" if it is not sampled.
func (s *Span) TraceID() string {
	if s == nil || !s.span.SpanContext().IsSampled() {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}
