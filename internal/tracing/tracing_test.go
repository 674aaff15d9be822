package tracing_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/otlp"
	"github.com/grapevine-epp/grapevine/internal/tracing"
)

// headers are request headers.
type headers map[string]string

func (h headers) Get(name string) string { return h[name] }

const (
	traceID     = "4bf92f3577b34da6a3ce929d0e0e4736"
	parentID    = "00f067aa0ba902b7"
	traceparent = "00-" + traceID + "-" + parentID + "-01"
	unsampled   = "00-" + traceID + "-" + parentID + "-00"
)

// open opens a tracer of the environment and closes it after the test.
func open(t *testing.T) *tracing.Tracer {
	t.Helper()
	tr := tracing.Open(tracing.Options{Service: "test", Version: "v1", Instance: "one"})
	if tr == nil {
		t.Fatal("tracing is off")
	}
	t.Cleanup(func() { end(t, tr) })
	return tr
}

func end(t *testing.T, tr *tracing.Tracer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	defer cancel()
	tr.Close(ctx)
}

// TestOff checks that tracing is off without settings, with settings that turn it off, and with
// invalid settings.
func TestOff(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for name, env := range map[string]map[string]string{
		"no settings":       {},
		"only a sampler":    {"OTEL_TRACES_SAMPLER": "always_on"},
		"disabled":          {endpoint: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
		"no exporter":       {endpoint: "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
		"unknown exporter":  {endpoint: "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "zipkin"},
		"endpoint, no URL":  {endpoint: "collector:4317"},
		"unknown protocol":  {endpoint: "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
		"endpoint of a log": {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range env {
				t.Setenv(k, v)
			}
			if tr := tracing.Open(tracing.Options{Service: "test"}); tr != nil {
				tr.Close(t.Context())
				t.Error("tracing is on")
			}
		})
	}
}

// TestOffAllocatesNothing checks that spans allocate nothing without a tracer.
func TestOffAllocatesNothing(t *testing.T) {
	var tr *tracing.Tracer
	h := headers{}
	if n := testing.AllocsPerRun(100, func() {
		s := tr.Begin(tracing.SpanRequest, trace.SpanKindServer, h)
		child := s.Sampled().Start(tracing.SpanDecision)
		scorer := child.StartNamed(tracing.SpanScorer, tracing.Plugin, "predicted")
		scorer.SetInt(tracing.Kept, 7)
		scorer.SetString(tracing.ErrorType, "none")
		scorer.End()
		child.Event(tracing.EventFirstToken)
		child.Fail("kind", "text")
		child.End()
		if s.Headers() != nil || s.TraceID() != "" {
			t.Fatal("a nil span has headers")
		}
		s.End()
	}); n != 0 {
		t.Errorf("a request that is not traced allocates %v times, want 0", n)
	}
}

// TestExport checks spans, attributes, events, errors and resources at collectors of both protocols.
func TestExport(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *otlp.Collector{"grpc": otlp.Start, "http": otlp.StartHTTP} {
		t.Run(name, func(t *testing.T) {
			c := start(t)
			c.Configure(t)
			t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=epp-0,service.version=v2")
			tr := open(t)
			s := tr.Begin(tracing.SpanRequest, trace.SpanKindServer)
			s.Event(tracing.EventFirstToken, tracing.Bytes.Int(3))
			child := s.StartNamed(tracing.SpanScorer, tracing.Plugin, "predicted")
			child.Fail("saturated", "the pool is full")
			child.End()
			s.End()
			spans := c.Await(t, tracing.SpanRequest, tracing.SpanScorer)
			root, scorer := otlp.Named(spans, tracing.SpanRequest)[0], otlp.Named(spans, tracing.SpanScorer)[0]
			if root.Parent != "" || scorer.Parent != root.ID || scorer.Trace != root.Trace || root.Trace != s.TraceID() {
				t.Errorf("scorer %+v is no child of root %+v", scorer, root)
			}
			if scorer.Failed != "the pool is full" || scorer.Attributes["error.type"] != "saturated" || scorer.Attributes[string(tracing.Plugin)] != "predicted" {
				t.Errorf("scorer = %+v", scorer)
			}
			if len(root.Events) != 1 || root.Events[0].Attributes[string(tracing.Bytes)] != int64(3) {
				t.Errorf("events of the root = %+v", root.Events)
			}
			for key, want := range map[string]string{"service.name": "test", "service.instance.id": "one", "service.version": "v2", "k8s.pod.name": "epp-0"} {
				if got := root.Resource[key]; got != want {
					t.Errorf("resource %s = %v, want %s", key, got, want)
				}
			}
		})
	}
}

// TestParent checks the accepted trace headers and the headers for the next server.
func TestParent(t *testing.T) {
	c := otlp.Start(t)
	c.Configure(t)
	b3 := headers{"b3": traceID + "-" + parentID + "-1"}
	multi := headers{"x-b3-traceid": traceID, "x-b3-spanid": parentID, "x-b3-sampled": "1"}
	other := headers{"traceparent": "00-11111111111111111111111111111111-2222222222222222-01"}
	for name, tc := range map[string]struct {
		propagators string
		from        []tracing.Getter
		trace       string // of the span; "": a new one
		set         []string
	}{
		"none":                     {from: []tracing.Getter{headers{}}, set: []string{"traceparent"}},
		"W3C":                      {from: []tracing.Getter{headers{"traceparent": traceparent}}, trace: traceID, set: []string{"traceparent"}},
		"W3C with state":           {from: []tracing.Getter{headers{"traceparent": traceparent, "tracestate": "a=b"}}, trace: traceID, set: []string{"traceparent", "tracestate"}},
		"invalid W3C":              {from: []tracing.Getter{headers{"traceparent": "00-zz"}}, set: []string{"traceparent"}},
		"B3 in one header":         {from: []tracing.Getter{b3}, trace: traceID, set: []string{"b3", "traceparent"}},
		"B3 in several headers":    {from: []tracing.Getter{multi}, trace: traceID, set: []string{"traceparent", "x-b3-sampled", "x-b3-spanid", "x-b3-traceid"}},
		"metadata before headers":  {from: []tracing.Getter{headers{"traceparent": traceparent}, other}, trace: traceID, set: []string{"traceparent"}},
		"headers without metadata": {from: []tracing.Getter{headers{}, other}, trace: "11111111111111111111111111111111", set: []string{"traceparent"}},
		"only W3C accepted":        {propagators: "tracecontext,baggage", from: []tracing.Getter{b3}, set: []string{"traceparent"}},
		"only B3 accepted":         {propagators: "b3multi", from: []tracing.Getter{other}, set: []string{"traceparent"}},
		"nothing accepted":         {propagators: "none", from: []tracing.Getter{other}, set: []string{"traceparent"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_PROPAGATORS", tc.propagators)
			s := open(t).Begin(tracing.SpanRequest, trace.SpanKindServer, tc.from...)
			defer s.End()
			if id := s.TraceID(); tc.trace != "" && id != tc.trace || id == "" || tc.trace == "" && id == traceID {
				t.Errorf("trace = %s, want %s", id, tc.trace)
			}
			var set []string
			for _, h := range s.Headers() {
				set = append(set, h.Name)
				if h.Name == "traceparent" && (!strings.Contains(h.Value, s.TraceID()) || strings.Contains(h.Value, parentID)) {
					t.Errorf("traceparent = %s, want the trace and another span", h.Value)
				}
			}
			if slices.Sort(set); !slices.Equal(set, tc.set) {
				t.Errorf("headers = %v, want %v", set, tc.set)
			}
		})
	}
}

// TestSampling checks the standard samplers. A request that is not sampled has no span. It gets
// headers with the sampling decision unless it arrived with them.
func TestSampling(t *testing.T) {
	c := otlp.Start(t)
	c.Configure(t)
	const requests = 10000
	for _, tc := range []struct {
		sampler, arg string
		from         headers
		least, most  int
		set          int // headers
	}{
		{"", "", headers{}, requests, requests, 1},
		{"always_off", "", headers{}, 0, 0, 1},
		{"parentbased_traceidratio", "0", headers{}, 0, 0, 1},
		{"parentbased_traceidratio", "0.01", headers{}, 40, 160, 1}, // six standard deviations
		{"parentbased_traceidratio", "1", headers{}, requests, requests, 1},
		{"parentbased_traceidratio", "0", headers{"traceparent": traceparent}, requests, requests, 1},
		{"parentbased_traceidratio", "1", headers{"traceparent": unsampled}, 0, 0, 0},
		{"always_off", "", headers{"traceparent": traceparent}, 0, 0, 1},
	} {
		t.Run(fmt.Sprint(tc.sampler, tc.arg, tc.from), func(t *testing.T) {
			t.Setenv("OTEL_TRACES_SAMPLER", tc.sampler)
			t.Setenv("OTEL_TRACES_SAMPLER_ARG", tc.arg)
			tr, sampled := open(t), 0
			for range requests {
				s := tr.Begin(tracing.SpanRequest, trace.SpanKindServer, tc.from)
				if s.Sampled() != nil {
					sampled++
				}
				if n := len(s.Headers()); n != tc.set {
					t.Fatalf("%d headers, want %d", n, tc.set)
				}
			}
			if sampled < tc.least || sampled > tc.most {
				t.Errorf("%d of %d requests are sampled, want %d to %d", sampled, requests, tc.least, tc.most)
			}
		})
	}
}

// TestQueueFull checks that a slow collector blocks no request, and that every dropped span is
// counted.
func TestQueueFull(t *testing.T) {
	c := otlp.Start(t)
	c.Configure(t)
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
	release := c.Hold()
	defer release()
	reg := prometheus.NewRegistry()
	tr := tracing.Open(tracing.Options{Service: "test", Registerer: reg})
	for range 10 {
		tr.Begin(tracing.SpanRequest, trace.SpanKindServer).End() // would hang here
	}
	expect(t, reg, 6, 0, 0)
	release()
	testkit.Await(t, "the spans in the queue", func() bool { return len(c.Spans()) == 4 })
	end(t, tr)
	expect(t, reg, 6, 4, 0)
	tr.Begin(tracing.SpanRequest, trace.SpanKindServer).End()
	if n := len(c.Spans()); n != 4 {
		t.Errorf("%d spans, want none after the end", n)
	}
}

func expect(t *testing.T, reg prometheus.Gatherer, dropped, exported, failed int) {
	t.Helper()
	want := fmt.Sprintf(`# HELP grapevine_tracing_spans_total Spans of sampled requests by result: exported to the collector, failed (the collector did not accept them), or dropped because the queue was full.
# TYPE grapevine_tracing_spans_total counter
grapevine_tracing_spans_total{result="dropped"} %d
grapevine_tracing_spans_total{result="exported"} %d
grapevine_tracing_spans_total{result="failed"} %d
`, dropped, exported, failed)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// lockedBuffer is a log that can be read during exports.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns the log.
func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestUnreachable checks the reported state while the collector cannot be reached. The failure is
// logged once. Neither requests nor the end of the process wait for the collector.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away := "http://" + l.Addr().String()
	l.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", away)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "50")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "5")
	var log lockedBuffer
	tr := tracing.Open(tracing.Options{Service: "test", Log: slog.New(slog.NewTextHandler(&log, nil))})
	if why := tr.Failing(); why != "" {
		t.Errorf("Failing() = %q before an export", why)
	}
	for range 3 { // three exports
		tr.Begin(tracing.SpanRequest, trace.SpanKindServer).End()
		testkit.Await(t, "a failed export", func() bool { return strings.Contains(tr.Failing(), away) })
	}
	begun := time.Now()
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "10000")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	tr.Begin(tracing.SpanRequest, trace.SpanKindServer).End()
	tr.Close(ctx)
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("Close took %v with a limit of 100 ms", took)
	}
	if n := strings.Count(log.String(), "spans cannot be exported"); n != 1 {
		t.Errorf("the failure was logged %d times, want 1:\n%s", n, log.String())
	}
}

// TestConventions checks the names of OpenTelemetry's semantic conventions.
func TestConventions(t *testing.T) {
	for got, want := range map[any]any{
		tracing.Operation: semconv.GenAIOperationNameKey, tracing.Model: semconv.GenAIRequestModelKey, tracing.MaxTokens: semconv.GenAIRequestMaxTokensKey,
		tracing.InputTokens: semconv.GenAIUsageInputTokensKey, tracing.OutputTokens: semconv.GenAIUsageOutputTokensKey, tracing.CachedTokens: semconv.GenAIUsageCacheReadInputTokensKey,
		tracing.ErrorType: semconv.ErrorTypeKey, tracing.Status: semconv.HTTPResponseStatusCodeKey, tracing.Server: semconv.ServerAddressKey, tracing.ServerPort: semconv.ServerPortKey,
		tracing.URLPath: semconv.URLPathKey,
	} {
		if got != want {
			t.Errorf("attribute %v, want %v", got, want)
		}
	}
}
