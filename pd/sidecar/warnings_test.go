package sidecar

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

// locked is a log that several goroutines write.
type locked struct {
	mu  sync.Mutex
	log bytes.Buffer
}

// Write implements io.Writer.
func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.String()
}

// TestComplaints: configuration errors between the engines are logged, though each client gets its
// answer. Errors of the request, and random failures, are not.
func TestComplaints(t *testing.T) {
	const whole = `{"choices":[{"message":{"content":"x"}}]}`
	secure := httptest.NewUnstartedServer(says(200, soundPrefill))
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	secure.StartTLS()
	defer secure.Close()
	slow := func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() }
	for _, c := range []struct {
		name   string
		target string
		engine http.HandlerFunc
		set    func(*Options)
		want   string // "" = nothing is said
	}{
		{"all well", prefiller(t, says(200, soundPrefill)), nil, nil, ""},
		{"nobody there", parts.FreeAddress(t), nil, nil, "no connection to the prefill engine"},
		{"TLS to one that speaks none", prefiller(t, says(200, soundPrefill)), nil, func(o *Options) { o.PrefillTLS = true }, "TLS with the prefill engine failed"},
		{"a certificate of nobody's", strings.TrimPrefix(secure.URL, "https://"), nil, func(o *Options) { o.PrefillTLS = true }, "TLS with the prefill engine failed"},
		{"no TLS to one that wants it", strings.TrimPrefix(secure.URL, "https://"), nil, nil, "TLS with the prefill engine failed"},
		{"another key", prefiller(t, says(401, `{"error":"x"}`)), nil, nil, "rejected the request's API key"},
		{"another model", prefiller(t, says(404, `{"error":"x"}`)), nil, nil, "does not serve the model"},
		{"a bad request", prefiller(t, says(400, `{"error":"x"}`)), nil, nil, ""},
		{"a full queue", prefiller(t, says(503, `{"error":"x"}`)), nil, nil, ""},
		{"no connector", prefiller(t, says(200, `{"kv_transfer_params":null}`)), nil, nil, "returned no KV transfer"},
		{"no engine", prefiller(t, says(200, `<html>`)), nil, nil, "the prefill engine's answer is not valid HTTP or JSON"},
		{"late", prefiller(t, slow), nil, func(o *Options) { o.Prefill = 20 * time.Millisecond }, "did not answer in time"},
		{"no bootstrap server", prefiller(t, says(200, "{}")), nil, func(o *Options) { o.Connector, o.BootstrapPort = Mooncake, 1 }, "bootstrap server does not list its ranks"},
		{"not signed or listed", "10.0.0.1:80", nil, func(o *Options) { o.Targets = Listed{} }, "neither signed by a picker nor listed"},
		{"other versions", prefiller(t, says(200, soundPrefill)), func(w http.ResponseWriter, r *http.Request) {
			if text, _ := io.ReadAll(r.Body); bytes.Contains(text, []byte(keyKVTransfer)) {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			says(200, whole)(w, r)
		}, nil, "the decode engine failed with the KV transfer"},
		{"a decode engine that fails anyway", prefiller(t, says(200, soundPrefill)), says(500, "{}"), nil, ""},
	} {
		engine := c.engine
		if engine == nil {
			engine = says(200, whole)
		}
		log, now := &locked{}, time.Unix(1e9, 0)
		o := Options{Engine: "http://" + prefiller(t, engine), Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo})), Now: func() time.Time { return now }}
		if c.set != nil {
			c.set(&o)
		}
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		ask := func() {
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[],"model":"m"}`))
			r.Header.Set(headerPrefiller, c.target)
			s.ServeHTTP(httptest.NewRecorder(), r)
		}
		ask()
		if got := log.String(); c.want == "" && got != "" || !strings.Contains(got, c.want) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: the log says %q, want one line with %q", c.name, got, c.want)
		}
		ask()
		ask()
		if n := strings.Count(log.String(), "\n"); n > 1 {
			t.Errorf("%s: %d lines within a minute", c.name, n)
		}
		now = now.Add(complaintEvery)
		if ask(); c.want != "" && !strings.Contains(log.String(), "since_last=2") {
			t.Errorf("%s: a minute later the log says %q", c.name, log.String())
		}
	}
}
