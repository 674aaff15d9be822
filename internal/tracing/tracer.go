package tracing

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of the instrumentation scope.
const scope = "github.com/grapevine-epp/grapevine"

// Options configures a Tracer. Environment variables configure the rest.
type Options struct {
	Service  string // service.name, unless the environment sets another one
	Instance string // service.instance.id, likewise
	Version  string // service.version, likewise

	Registerer prometheus.Registerer // nil leaves the metrics unregistered
	Log        *slog.Logger          // nil discards
}

// Tracer begins spans. A nil Tracer begins none. It is safe for concurrent use.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	formats  formats
	queue    *queue
	log      *slog.Logger
}

// Open returns the tracer that the environment describes, or nil if tracing is off. Invalid
// settings are logged and ignored, because they must not stop a process that serves requests. Close
// exports the remaining spans.
func Open(o Options) *Tracer {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if !enabled(o.Log) {
		return nil
	}
	t := &Tracer{log: o.Log, formats: formatsOf(os.Getenv("OTEL_PROPAGATORS"), o.Log)}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { // the program's log limits repeated lines
		o.Log.Warn("tracing reports an error", "error", err)
	}))
	exporter, endpoint, err := openExporter()
	if err != nil {
		o.Log.Warn("tracing is off: the exporter cannot be opened", "error", err)
		return nil
	}
	t.queue = newQueue(exporter, endpoint, o.Log)
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(t.queue), sdktrace.WithResource(resourceOf(&o)))
	t.tracer = t.provider.Tracer(scope, trace.WithInstrumentationVersion(o.Version))
	if o.Registerer != nil {
		if err := o.Registerer.Register(t.queue); err != nil {
			o.Log.Error("metrics of tracing are not served", "error", err)
		}
	}
	o.Log.Info("requests are traced", "endpoint", endpoint, "sampler", cmp.Or(os.Getenv("OTEL_TRACES_SAMPLER"), "parentbased_always_on"))
	return t
}

// enabled reports whether the environment turns tracing on.
func enabled(log *slog.Logger) bool {
	if off, _ := strconv.ParseBool(os.Getenv("OTEL_SDK_DISABLED")); off {
		return false
	}
	switch exporter := strings.TrimSpace(os.Getenv("OTEL_TRACES_EXPORTER")); exporter {
	case "":
		return traceSetting("ENDPOINT") != ""
	case "none":
		return false
	case "otlp":
		return true
	default:
		log.Warn("tracing is off: OTEL_TRACES_EXPORTER must be otlp or none", "value", exporter)
		return false
	}
}

// traceSetting returns the value of an OTLP variable for traces, or the one for all signals.
func traceSetting(name string) string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
}

var (
	errEndpoint = errors.New("OTEL_EXPORTER_OTLP_ENDPOINT must be a URL such as http://collector:4317")
	errProtocol = errors.New("OTEL_EXPORTER_OTLP_PROTOCOL must be grpc or http/protobuf")
)

// grpcPort is the registered port of OTLP over gRPC.
const grpcPort = "4317"

// openExporter returns the exporter and its endpoint for log lines. If no protocol is set, port 4317
// selects gRPC and any other port selects HTTP, the default of the specification.
func openExporter() (sdktrace.SpanExporter, string, error) {
	endpoint, protocol := traceSetting("ENDPOINT"), traceSetting("PROTOCOL")
	if endpoint != "" {
		u, err := url.Parse(endpoint)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, "", errEndpoint
		}
		if protocol == "" && u.Port() == grpcPort {
			protocol = "grpc"
		}
		endpoint = u.Redacted()
	}
	// Neither function connects. The other variables, such as headers and certificates, are read by
	// the exporters.
	switch cmp.Or(protocol, "http/protobuf") {
	case "grpc":
		e, err := otlptracegrpc.New(context.Background())
		return e, cmp.Or(endpoint, "http://localhost:4317"), err
	case "http/protobuf":
		e, err := otlptracehttp.New(context.Background())
		return e, cmp.Or(endpoint, "http://localhost:4318"), err
	default:
		return nil, "", errProtocol
	}
}

// resourceOf describes this process. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
func resourceOf(o *Options) *resource.Resource {
	own := []attribute.KeyValue{attribute.String("service.name", o.Service)}
	if o.Version != "" {
		own = append(own, attribute.String("service.version", o.Version))
	}
	if o.Instance != "" {
		own = append(own, attribute.String("service.instance.id", o.Instance))
	}
	r, err := resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithAttributes(own...), resource.WithFromEnv())
	if err != nil {
		otel.Handle(err)
	}
	return r
}

// Failing returns why spans cannot be exported, or "" if they can.
func (t *Tracer) Failing() string {
	if t == nil {
		return ""
	}
	return t.queue.failing()
}

// Close exports the remaining spans until ctx ends. Later spans are dropped.
func (t *Tracer) Close(ctx context.Context) {
	if t == nil {
		return
	}
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("some spans were not exported before the end", "error", err)
	}
	t.queue.abort()
}
