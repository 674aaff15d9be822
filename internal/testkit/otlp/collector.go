package otlp

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/tracing"
)

// Span is a received span.
type Span struct {
	Trace, ID, Parent string // hexadecimal; Parent is "" for a root
	Name              string
	Kind              tracepb.Span_SpanKind
	Start, End        time.Time
	Attributes        map[string]any
	Events            []Event
	Failed            string // message of an error status, "" without one
	Service           string
	Resource          map[string]any
}

// Event is an event of a span.
type Event struct {
	Name       string
	Attributes map[string]any
}

// Collector receives spans over gRPC or HTTP until the test ends. It is safe for concurrent use.
type Collector struct {
	collectorpb.UnimplementedTraceServiceServer
	URL      string
	Protocol string // value of OTEL_EXPORTER_OTLP_PROTOCOL

	mu    sync.Mutex
	spans []Span
	held  chan struct{} // exports wait until it is closed; nil: they do not wait
}

// Start starts a collector that speaks gRPC.
func Start(tb testing.TB) *Collector {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	c := &Collector{URL: "http://" + l.Addr().String(), Protocol: "grpc"}
	s := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(s, c)
	go func() { _ = s.Serve(l) }()
	tb.Cleanup(s.Stop)
	return c
}

// StartHTTP starts a collector that speaks HTTP with protocol buffers.
func StartHTTP(tb testing.TB) *Collector {
	tb.Helper()
	c := &Collector{Protocol: "http/protobuf"}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var m collectorpb.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &m) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = c.Export(r.Context(), &m) // never fails
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	tb.Cleanup(s.Close)
	c.URL = s.URL
	return c
}

// Settings returns the environment variables of a process that exports to the collector at once.
func (c *Collector) Settings() map[string]string {
	return map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_EXPORTER_OTLP_PROTOCOL": c.Protocol, "OTEL_BSP_SCHEDULE_DELAY": "20",
	}
}

// Configure sets these variables for the test.
func (c *Collector) Configure(tb testing.TB) {
	tb.Helper()
	for name, value := range c.Settings() {
		tb.Setenv(name, value)
	}
}

// Hold makes exports wait until the returned function is called.
func (c *Collector) Hold() (release func()) {
	held := make(chan struct{})
	c.mu.Lock()
	c.held = held
	c.mu.Unlock()
	return sync.OnceFunc(func() { close(held) })
}

// Export implements the collector's service.
func (c *Collector) Export(ctx context.Context, m *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	held := c.held
	c.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range m.ResourceSpans {
		resource := attributes(r.GetResource().GetAttributes())
		for _, scope := range r.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, spanOf(s, resource))
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

func spanOf(s *tracepb.Span, resource map[string]any) Span {
	out := Span{
		Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
		Name: s.Name, Kind: s.Kind, Start: time.Unix(0, int64(s.StartTimeUnixNano)), End: time.Unix(0, int64(s.EndTimeUnixNano)),
		Attributes: attributes(s.Attributes), Resource: resource,
	}
	out.Service, _ = resource["service.name"].(string)
	if s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		out.Failed = s.Status.Message
	}
	for _, e := range s.Events {
		out.Events = append(out.Events, Event{e.Name, attributes(e.Attributes)})
	}
	return out
}

func attributes(list []*commonpb.KeyValue) map[string]any {
	out := map[string]any{}
	for _, a := range list {
		out[a.Key] = value(a.Value)
	}
	return out
}

func value(v *commonpb.AnyValue) any {
	switch v := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_IntValue:
		return v.IntValue
	case *commonpb.AnyValue_DoubleValue:
		return v.DoubleValue
	case *commonpb.AnyValue_BoolValue:
		return v.BoolValue
	case *commonpb.AnyValue_ArrayValue:
		var list []string
		for _, e := range v.ArrayValue.Values {
			list = append(list, e.GetStringValue())
		}
		return list
	}
	return nil
}

// Spans returns the received spans in the order of their start.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := slices.Clone(c.spans)
	slices.SortStableFunc(list, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return list
}

// Await waits for a span of each name and returns all spans.
func (c *Collector) Await(tb testing.TB, names ...string) []Span {
	tb.Helper()
	for _, name := range names {
		testkit.Await(tb, "span "+name, func() bool { return len(Named(c.Spans(), name)) > 0 })
	}
	return c.Spans()
}

// Named returns the spans with that name.
func Named(list []Span, name string) (out []Span) {
	for _, s := range list {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}

// Children returns the spans whose parent is that one.
func Children(list []Span, parent Span) (out []Span) {
	for _, s := range list {
		if s.Trace == parent.Trace && s.Parent == parent.ID {
			out = append(out, s)
		}
	}
	return out
}

// CheckNames checks that the spans, events and attributes are those of [tracing.Spans], and that
// every span has the kind and parent that are documented.
func CheckNames(tb testing.TB, list []Span) {
	tb.Helper()
	byID := map[string]string{}
	for _, s := range list {
		byID[s.ID] = s.Name
	}
	for _, s := range list {
		i := slices.IndexFunc(tracing.Spans, func(d tracing.SpanInfo) bool { return d.Name == s.Name })
		if i < 0 {
			tb.Errorf("span %s is not documented", s.Name)
			continue
		}
		if want := "SPAN_KIND_" + strings.ToUpper(tracing.Spans[i].Kind); s.Kind.String() != want {
			tb.Errorf("span %s has kind %s, want %s", s.Name, s.Kind, want)
		}
		if parent := byID[s.Parent]; strings.HasPrefix(tracing.Spans[i].Parent, "grapevine.") && parent != tracing.Spans[i].Parent {
			tb.Errorf("span %s has parent %q, want %s", s.Name, parent, tracing.Spans[i].Parent)
		}
		for key := range s.Attributes {
			if !tracing.Declared(s.Name, "", attribute.Key(key)) {
				tb.Errorf("span %s: attribute %s is not documented", s.Name, key)
			}
		}
		for _, e := range s.Events {
			if !tracing.Declared(s.Name, e.Name, "") {
				tb.Errorf("span %s: event %s is not documented", s.Name, e.Name)
			}
			for key := range e.Attributes {
				if !tracing.Declared(s.Name, e.Name, attribute.Key(key)) {
					tb.Errorf("event %s: attribute %s is not documented", e.Name, key)
				}
			}
		}
	}
}

// Tree draws spans as text: each below its parent, with service, start after the first span and
// duration.
func Tree(list []Span) string {
	var b strings.Builder
	known := map[string]bool{}
	for _, s := range list {
		known[s.ID] = true
	}
	var draw func(s Span, depth int)
	draw = func(s Span, depth int) {
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		label := strings.Repeat("  ", depth) + s.Name
		if plugin, ok := s.Attributes[string(tracing.Plugin)]; ok {
			label += fmt.Sprintf(" (%v)", plugin)
		}
		if profile, ok := s.Attributes[string(tracing.Profile)]; ok {
			label += fmt.Sprintf(" (%v)", profile)
		}
		fmt.Fprintf(&b, "%-18s %-52s %9.2f %9.2f\n", s.Service, label, ms(s.Start.Sub(list[0].Start)), ms(s.End.Sub(s.Start)))
		for _, c := range Children(list, s) {
			draw(c, depth+1)
		}
	}
	fmt.Fprintf(&b, "%-18s %-52s %9s %9s\n", "service", "span", "start ms", "took ms")
	for _, s := range list {
		if !known[s.Parent] {
			draw(s, 0)
		}
	}
	return b.String()
}
