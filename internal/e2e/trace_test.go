package e2e

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/otlp"
	"github.com/grapevine-epp/grapevine/internal/tracing"
)

// TestTrace checks that client, Envoy, picker, sidecar and prefill engine are in one trace, with and
// without spans of Envoy itself.
func TestTrace(t *testing.T) {
	const traceID, clientSpan = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for name, envoyTraces := range map[string]bool{"Envoy passes the trace on": false, "Envoy traces": true} {
		t.Run(name, func(t *testing.T) {
			c := otlp.Start(t)
			c.Configure(t)
			var mu sync.Mutex
			var got []string // traceparent of the prefill engine's requests
			front := func(_ int, engine string) string {
				p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: engine})
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if h := r.Header.Get("traceparent"); h != "" {
						mu.Lock()
						got = append(got, h)
						mu.Unlock()
					}
					p.ServeHTTP(w, r)
				}))
				t.Cleanup(s.Close)
				return strings.TrimPrefix(s.URL, "http://")
			}
			var o rigOptions
			if envoyTraces {
				o.params = func(p *envoyconf.Params) { p.OTLP = strings.TrimPrefix(c.URL, "http://") }
			}
			r := openPDBehind(t, 1, 1, patience, front, o)
			if out := r.stream(long("ann"), "traceparent", "00-"+traceID+"-"+clientSpan+"-01"); out.status != http.StatusOK {
				t.Fatalf("status %d", out.status)
			}
			spans := c.Await(t, tracing.SpanRequest, tracing.SpanDecision, tracing.SpanSidecar, tracing.SpanPrefill, tracing.SpanDecode)
			for _, s := range spans {
				if s.Trace != traceID && strings.HasPrefix(s.Name, "grapevine.") {
					t.Errorf("span %s is in trace %s, want the client's", s.Name, s.Trace)
				}
			}
			picker, side, leg := otlp.Named(spans, tracing.SpanRequest)[0], otlp.Named(spans, tracing.SpanSidecar)[0], otlp.Named(spans, tracing.SpanPrefill)[0]
			if leg.Parent != side.ID {
				t.Errorf("the prefill leg's parent is %s, want the sidecar's span %s", leg.Parent, side.ID)
			}
			mu.Lock()
			if want := "00-" + traceID + "-" + leg.ID + "-01"; len(got) != 1 || got[0] != want {
				t.Errorf("the prefill engine got traceparent %v, want %s", got, want)
			}
			mu.Unlock()
			if !envoyTraces {
				if picker.Parent != clientSpan || side.Parent != picker.ID {
					t.Errorf("parents are %s and %s, want client %s and picker %s", picker.Parent, side.Parent, clientSpan, picker.ID)
				}
				return
			}
			for what, span := range map[string]otlp.Span{"picker": picker, "sidecar": side} {
				testkit.Await(t, "Envoy's span above that of the "+what, func() bool {
					return slices.ContainsFunc(c.Spans(), func(s otlp.Span) bool {
						return s.ID == span.Parent && s.Trace == traceID && s.Service == "envoy"
					})
				})
			}
			t.Log("\n" + otlp.Tree(c.Spans()))
		})
	}
}
