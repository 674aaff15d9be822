package server

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/monitor"
)

// TestEngineTLS: engines that accept only TLS are read, asked for models and probed. Certificates are
// verified on request, and a metrics-data-source takes precedence over the options.
func TestEngineTLS(t *testing.T) {
	engine := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			fmt.Fprint(w, `{"data":[{"id":"m"}]}`)
		case "/v1/completions":
			fmt.Fprint(w, `{"choices":[{"text":"4"}]}`)
		case "/stats":
			fmt.Fprint(w, "vllm:num_requests_running 3\nvllm:num_requests_waiting 0\n")
		}
	}))
	engine.Config.ErrorLog = log.New(io.Discard, "", 0) // of the refused handshakes
	engine.StartTLS()
	t.Cleanup(engine.Close)
	host, port, _ := strings.Cut(engine.Listener.Addr().String(), ":")
	endpoints := filepath.Join(t.TempDir(), "endpoints.yaml")
	if err := os.WriteFile(endpoints, fmt.Appendf(nil, "endpoints: [{name: e, address: %s, port: %s}]\n", host, port), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(t *testing.T, engines EngineOptions, config string) *Server {
		return open(t, Options{Name: "r", Version: "dev", Listen: "127.0.0.1:0", Health: "-", Admin: "127.0.0.1:0", ConfigText: config, Endpoints: endpoints, Engines: engines})
	}
	probe := func(s *Server) monitor.Result {
		return monitor.NewProber("http", s.engines.client(monitor.NewClient())).Probe(context.Background(), s.pool.Snapshot().Endpoints[0])
	}
	const header = "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\n"
	const source = header + `plugins:
- type: metrics-data-source
  parameters: {scheme: %s, path: /stats, insecureSkipVerify: %t}
`
	for name, x := range map[string]struct {
		engines EngineOptions
		config  string
		reached bool
	}{
		"options":                     {EngineOptions{Scheme: "https", MetricsPath: "/stats"}, "", true},
		"verified":                    {EngineOptions{Scheme: "https", MetricsPath: "/stats", Verify: true}, "", false},
		"plaintext":                   {EngineOptions{Scheme: "http", MetricsPath: "/stats"}, "", false},
		"configuration":               {EngineOptions{Scheme: "http"}, fmt.Sprintf(source, "https", true), true},
		"configuration, verified":     {EngineOptions{Scheme: "https", MetricsPath: "/stats"}, fmt.Sprintf(source, "https", false), false},
		"configuration for plaintext": {EngineOptions{Scheme: "https", MetricsPath: "/stats"}, fmt.Sprintf(source, "http", true), false},
		"configuration without it":    {EngineOptions{Scheme: "https", MetricsPath: "/stats"}, header + "plugins: [{type: queue-scorer}]\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, x.engines, x.config)
			if !x.reached {
				if got := probe(s); got == monitor.Passed {
					t.Errorf("probe = %v, want a failure", got)
				}
				return
			}
			if got := probe(s); got != monitor.Passed {
				t.Errorf("probe = %v, want passed", got)
			}
			testkit.Await(t, "gauges and models are read", func() bool {
				models := s.pool.Snapshot().Models()
				return s.pool.Snapshot().Endpoints[0].Gauges().Running == 3 && len(models) == 1 && models[0].Name == "m"
			})
		})
	}
}
