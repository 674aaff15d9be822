package sidecar

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit/otlp"
	"github.com/grapevine-epp/grapevine/internal/tracing"
)

// tracedEngine is an engine for both phases that keeps the traceparent of each request.
type tracedEngine struct {
	*httptest.Server
	mu   sync.Mutex
	got  []string
	fail bool // prefill legs fail
}

func newTracedEngine(t *testing.T) *tracedEngine {
	e := new(tracedEngine)
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e.mu.Lock()
		e.got = append(e.got, r.Header.Get("traceparent"))
		fail := e.fail
		e.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.Contains(string(body), "do_remote_decode\":true") && fail:
			w.WriteHeader(http.StatusInternalServerError)
		case strings.Contains(string(body), "do_remote_decode\":true"):
			_, _ = io.WriteString(w, `{"choices":[],"kv_transfer_params":{"remote_block_ids":[[1]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}}`)
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"text\":\"x\"}]}\n\ndata: [DONE]\n\n")
		}
	}))
	t.Cleanup(e.Close)
	return e
}

// first returns the traceparent of the first request, "" before.
func (e *tracedEngine) first() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.got) == 0 {
		return ""
	}
	return e.got[0]
}

// TestTraceOfLegs checks that the spans of a split request and of its legs join the picker's trace,
// that each engine continues its own leg, and that failed legs are marked.
func TestTraceOfLegs(t *testing.T) {
	const traceID, pickerSpan = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprintf("prefill fails %v", fails), func(t *testing.T) {
			c := otlp.Start(t)
			c.Configure(t)
			tracer := tracing.Open(tracing.Options{Service: "grapevine-sidecar"})
			defer func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
				defer cancel()
				tracer.Close(ctx)
			}()
			prefill, decode := newTracedEngine(t), newTracedEngine(t)
			prefill.fail = fails
			s, err := New(Options{Engine: decode.URL, Tracer: tracer, DeathWait: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			target := strings.TrimPrefix(prefill.URL, "http://")
			r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{"model":"m","prompt":"a","max_tokens":9,"stream":true}`))
			r.Header.Set(headerPrefiller, target)
			r.Header.Set("traceparent", "00-"+traceID+"-"+pickerSpan+"-01")
			r.Header.Set("x-request-id", "r-1")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			spans := c.Await(t, tracing.SpanSidecar, tracing.SpanPrefill, tracing.SpanDecode)
			otlp.CheckNames(t, spans)
			root := otlp.Named(spans, tracing.SpanSidecar)[0]
			if root.Trace != traceID || root.Parent != pickerSpan || root.Service != "grapevine-sidecar" {
				t.Errorf("request %+v, want a child of the picker's span", root)
			}
			if root.Attributes["grapevine.request.id"] != "r-1" || root.Attributes["http.response.status_code"] != int64(200) || root.Attributes["grapevine.split"] != true {
				t.Errorf("attributes of the request = %v", root.Attributes)
			}
			p, d := otlp.Named(spans, tracing.SpanPrefill)[0], otlp.Named(spans, tracing.SpanDecode)[0]
			if p.Parent != root.ID || d.Parent != root.ID {
				t.Errorf("legs %+v and %+v are no children of %s", p, d, root.ID)
			}
			if got := p.Attributes["server.address"].(string) + ":" + fmt.Sprint(p.Attributes["server.port"]); got != target {
				t.Errorf("prefill leg to %s, want %s", got, target)
			}
			outcome, failed := "ok", ""
			if fails {
				outcome, failed = "status_5xx", http.StatusText(http.StatusInternalServerError)
			}
			if p.Attributes[string(tracing.Outcome)] != outcome || p.Failed != failed {
				t.Errorf("prefill leg %v with error %q, want %s with error %q", p.Attributes, p.Failed, outcome, failed)
			}
			if len(d.Events) != 1 || d.Events[0].Name != tracing.EventFirstToken || d.Failed != "" {
				t.Errorf("decode leg %+v, want a first token", d)
			}
			for e, leg := range map[*tracedEngine]otlp.Span{prefill: p, decode: d} {
				if got, want := e.first(), "00-"+traceID+"-"+leg.ID+"-01"; got != want {
					t.Errorf("engine of %s got traceparent %q, want %s", leg.Name, got, want)
				}
			}
		})
	}
}

// TestUntracedLegs checks that engines get the client's header unchanged without tracing.
func TestUntracedLegs(t *testing.T) {
	engine := newTracedEngine(t)
	s, err := New(Options{Engine: engine.URL})
	if err != nil {
		t.Fatal(err)
	}
	const says = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{"model":"m","prompt":"a","stream":true}`))
	r.Header.Set("traceparent", says)
	s.ServeHTTP(httptest.NewRecorder(), r)
	if got := engine.first(); got != says {
		t.Errorf("traceparent = %q, want %s", got, says)
	}
}
