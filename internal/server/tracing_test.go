package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/otlp"
	"github.com/grapevine-epp/grapevine/internal/tracing"
)

const (
	clientTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientSpan  = "00f067aa0ba902b7"
	clientSays  = "00-" + clientTrace + "-" + clientSpan + "-01"
)

// tracedServer opens a replica in front of three engines and returns a client of it.
func tracedServer(t *testing.T) extprocv3.ExternalProcessorClient {
	t.Helper()
	client, _ := tracedReplica(t)
	return client
}

func tracedReplica(t *testing.T) (extprocv3.ExternalProcessorClient, *Server) {
	t.Helper()
	_, o := options(t, fleet.Options{Engines: 3})
	o.TLS = listen.TLS{Plaintext: true}
	o.SampleBodies = 1
	s := open(t, o)
	testkit.Await(t, "ready", func() bool { return s.Status().State == "ready" })
	conn, err := grpc.NewClient(s.ExtProcAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return extprocv3.NewExternalProcessorClient(conn), s
}

// TestExemplars: a page with exemplars names the trace of a sampled request, and no trace of one that
// is not sampled.
func TestExemplars(t *testing.T) {
	c := otlp.Start(t)
	c.Configure(t)
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
	client, s := tracedReplica(t)
	page := func() string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.AdminAddr().String()+"/metrics", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/openmetrics-text") {
			t.Fatalf("%v, %s", err, resp.Header.Get("Content-Type"))
		}
		return string(text)
	}
	playTraced(t.Context(), t, client, vocab.Name)
	if text := page(); strings.Contains(text, "trace_id") || !strings.HasSuffix(text, "# EOF\n") {
		t.Error("the page has an exemplar without a sampled request, or no end")
	}
	playTraced(t.Context(), t, client, vocab.Name, "traceparent", clientSays)
	testkit.Eventually(t, func() string {
		text := page()
		for _, name := range []string{"grapevine_picker_decision_seconds_bucket", "grapevine_picker_ttft_seconds_bucket"} {
			if !regexp.MustCompile(name + `\{[^\n]* # \{trace_id="` + clientTrace + `"\}`).MatchString(text) {
				return name + " has no exemplar with the trace"
			}
		}
		return ""
	})
}

// head returns a message's headers.
func head(kv ...string) *extprocv3.HttpHeaders {
	m := &corev3.HeaderMap{}
	for i := 0; i < len(kv); i += 2 {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: kv[i], RawValue: []byte(kv[i+1])})
	}
	return &extprocv3.HttpHeaders{Headers: m}
}

// playTraced plays a streamed request and its answer, and returns the headers that the picker sets
// on the request.
func playTraced(ctx context.Context, t *testing.T, client extprocv3.ExternalProcessorClient, model string, headers ...string) map[string]string {
	t.Helper()
	stream, err := client.Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(m *extprocv3.ProcessingRequest) {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	body := fmt.Appendf(nil, `{"model":%q,"prompt":"Tell me of the sea","max_tokens":5,"stream":true}`, model)
	send(&extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: head(append([]string{
			":authority", "gateway", ":path", "/v1/completions?x=y", ":method", "POST", "content-type", "application/json", "x-request-id", "r-1"}, headers...)...)},
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: filterv3.ProcessingMode_FULL_DUPLEX_STREAMED, ResponseBodyMode: filterv3.ProcessingMode_FULL_DUPLEX_STREAMED},
	})
	send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: body, EndOfStream: true}}})
	set := map[string]string{}
	for placed := false; !placed; {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.GetImmediateResponse() != nil {
			return nil
		}
		for _, h := range m.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
			set[h.Header.Key] = string(h.Header.RawValue)
		}
		placed = m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetEndOfStream()
	}
	answer := "data: {\"choices\":[{\"text\":\"It\",\"finish_reason\":null}]}\n\n" +
		"data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":1}}}\n\ndata: [DONE]\n\n"
	send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: head(":status", "200", "content-type", "text/event-stream")}})
	send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: []byte(answer), EndOfStream: true}}})
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	return set
}

// TestTraceOfARequest checks the spans of a request that continues its client's trace: parents,
// attributes, the arithmetic of the choice, and the header for the engine.
func TestTraceOfARequest(t *testing.T) {
	c := otlp.Start(t)
	c.Configure(t)
	set := playTraced(t.Context(), t, tracedServer(t), vocab.Name, "traceparent", clientSays)
	spans := c.Await(t, tracing.SpanRequest, tracing.SpanDecision, tracing.SpanRender, tracing.SpanMatch, tracing.SpanScorer)
	otlp.CheckNames(t, spans)
	root := otlp.Named(spans, tracing.SpanRequest)[0]
	if root.Trace != clientTrace || root.Parent != clientSpan {
		t.Errorf("request span has trace %s and parent %s, want the client's", root.Trace, root.Parent)
	}
	if want := "00-" + clientTrace + "-" + root.ID + "-01"; set["traceparent"] != want {
		t.Errorf("the engine gets traceparent %q, want %q", set["traceparent"], want)
	}
	host, port, _ := strings.Cut(set["x-gateway-destination-endpoint"], ":")
	for key, want := range map[string]any{
		"gen_ai.operation.name": "text_completion", "gen_ai.request.model": vocab.Name, "gen_ai.request.max_tokens": int64(5),
		"gen_ai.usage.input_tokens": int64(5), "gen_ai.usage.output_tokens": int64(2), "gen_ai.usage.cache_read.input_tokens": int64(1),
		"http.response.status_code": int64(200), "server.address": host, "url.path": "/v1/completions", "grapevine.request.id": "r-1", "grapevine.request.stream": true,
	} {
		if got := root.Attributes[key]; got != want {
			t.Errorf("%s = %v, want %v", key, got, want)
		}
	}
	if fmt.Sprint(root.Attributes["server.port"]) != port {
		t.Errorf("server.port = %v, want %s", root.Attributes["server.port"], port)
	}
	if len(root.Events) != 1 || root.Events[0].Name != tracing.EventFirstToken {
		t.Errorf("events of the request = %v, want the first token", root.Events)
	}
	decision := otlp.Named(spans, tracing.SpanDecision)[0]
	for parent, children := range map[string][]string{
		tracing.SpanRequest:  {tracing.SpanParse, tracing.SpanDecision},
		tracing.SpanDecision: {tracing.SpanQueue, tracing.SpanRender, tracing.SpanProfile},
		tracing.SpanProfile:  {tracing.SpanScorer, tracing.SpanPicker},
		tracing.SpanScorer:   {tracing.SpanMatch},
	} {
		p := otlp.Named(spans, parent)[0]
		for _, name := range children {
			if len(otlp.Named(otlp.Children(spans, p), name)) == 0 {
				t.Errorf("%s has no child %s", parent, name)
			}
		}
	}
	if len(decision.Events) != 1 {
		t.Fatalf("events of the decision = %v, want one", decision.Events)
	}
	choice := decision.Events[0].Attributes
	address := host + ":" + port
	if choice["grapevine.chosen.endpoint"] != address {
		t.Errorf("chosen endpoint = %v, want %s", choice["grapevine.chosen.endpoint"], address)
	}
	if second, _ := choice["grapevine.second.endpoint"].(string); second == "" || second == address {
		t.Errorf("second best = %v, want another endpoint", choice["grapevine.second.endpoint"])
	}
	sum := 0.0
	for _, term := range []string{"wait_ms", "own_ms", "base_ms", "fetch_ms", "load_ms"} {
		v, ok := choice["grapevine.chosen."+term].(float64)
		if !ok {
			t.Errorf("the choice has no %s", term)
		}
		sum += v
	}
	if ttft, _ := choice["grapevine.chosen.ttft_ms"].(float64); ttft <= 0 || sum < ttft*.99 || sum > ttft*1.01 {
		t.Errorf("the terms sum to %v ms, want the predicted time of %v ms", sum, choice["grapevine.chosen.ttft_ms"])
	}
	margin := choice["grapevine.chosen.total"].(float64) - choice["grapevine.second.total"].(float64)
	if choice["grapevine.margin"] != margin {
		t.Errorf("margin = %v, want the difference %v of the totals", choice["grapevine.margin"], margin)
	}
	if scores, _ := choice["grapevine.chosen.scores"].([]string); len(scores) == 0 {
		t.Error("the choice has no scores")
	}
}

// TestTraceOfAProxy checks that the span of a proxy that traces its call is the parent, not the span
// in the request's headers.
func TestTraceOfAProxy(t *testing.T) {
	c := otlp.Start(t)
	c.Configure(t)
	const proxySpan = "1111111111111111"
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+clientTrace+"-"+proxySpan+"-01")
	playTraced(ctx, t, tracedServer(t), vocab.Name, "traceparent", clientSays)
	spans := c.Await(t, tracing.SpanRequest)
	if root := spans[0]; root.Trace != clientTrace || root.Parent != proxySpan {
		t.Errorf("trace %s with parent %s, want the proxy's call %s", root.Trace, root.Parent, proxySpan)
	}
}

// TestTraceOfARefusal checks the spans of a request that is not dispatched.
func TestTraceOfARefusal(t *testing.T) {
	c := otlp.Start(t)
	c.Configure(t)
	playTraced(t.Context(), t, tracedServer(t), "no-such-model")
	spans := c.Await(t, tracing.SpanRequest, tracing.SpanDecision)
	otlp.CheckNames(t, spans)
	root, decision := otlp.Named(spans, tracing.SpanRequest)[0], otlp.Named(spans, tracing.SpanDecision)[0]
	if root.Attributes["error.type"] != "model_not_found" || root.Attributes["http.response.status_code"] != int64(404) || root.Failed != "" {
		t.Errorf("request %+v, want a client's mistake", root)
	}
	if decision.Failed == "" || decision.Attributes["error.type"] != "model_not_found" {
		t.Errorf("decision %+v, want the reason", decision)
	}
}

// TestUntraced checks that without tracing the client's headers pass unchanged, and that a request
// which the client does not want sampled has no spans.
func TestUntraced(t *testing.T) {
	for name, on := range map[string]bool{"off": false, "not sampled": true} {
		t.Run(name, func(t *testing.T) {
			c := otlp.Start(t)
			if on {
				c.Configure(t)
			}
			client := tracedServer(t)
			set := playTraced(t.Context(), t, client, vocab.Name, "traceparent", "00-"+clientTrace+"-"+clientSpan+"-00")
			if v, changed := set["traceparent"]; changed {
				t.Errorf("traceparent is changed to %q", v)
			}
			if on { // a later request's spans arrive, so the first one's would have
				playTraced(t.Context(), t, client, vocab.Name)
				c.Await(t, tracing.SpanRequest)
			}
			if slices.ContainsFunc(c.Spans(), func(s otlp.Span) bool { return s.Trace == clientTrace }) {
				t.Error("a request that is not sampled has spans")
			}
		})
	}
}

// TestTracingFails checks that an unreachable collector is a problem of the replica.
func TestTracingFails(t *testing.T) {
	var sy symptoms
	sy.tracing = "http://collector:4317: connection refused"
	found := findProblems(&Status{State: "ready"}, sy)
	if !slices.ContainsFunc(found, func(f problems.Found) bool { return f.Code == problems.Tracing && f.Items[0].Detail == sy.tracing }) {
		t.Errorf("problems = %v, want %s", found, problems.Tracing)
	}
}

// TestTraceOfAModelList checks the span of a request that the picker answers itself.
func TestTraceOfAModelList(t *testing.T) {
	c := otlp.Start(t)
	c.Configure(t)
	stream, err := tracedServer(t).Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extprocv3.HttpHeaders{Headers: head(":path", "/v1/models", ":method", "GET").Headers, EndOfStream: true},
	}}); err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || m.GetImmediateResponse() == nil {
		t.Fatalf("%v, %v, want an immediate response", m, err)
	}
	spans := c.Await(t, tracing.SpanRequest)
	otlp.CheckNames(t, spans)
	if len(spans) != 1 || spans[0].Attributes["http.response.status_code"] != int64(200) || spans[0].Attributes["url.path"] != "/v1/models" {
		t.Errorf("spans = %+v, want one with status 200", spans)
	}
}
