// Package otlp is an OpenTelemetry collector for tests: it receives spans over OTLP and keeps them.
package otlp
