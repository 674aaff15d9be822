// Package tracing makes OpenTelemetry spans of requests and exports them over OTLP.
//
// Tracing is configured by the standard OTEL_* environment variables and is off without them. A nil
// [Tracer] and a nil [Span] are valid and do nothing, so that callers need no condition: their
// methods allocate nothing and take no lock.
//
// The names of all spans, events and attributes are in [Spans].
package tracing
