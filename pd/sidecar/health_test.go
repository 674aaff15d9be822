package sidecar

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/retry"
)

// TestReady: the sidecar is ready only while it accepts requests and the engine is healthy.
func TestReady(t *testing.T) {
	var status atomic.Int32
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			w.WriteHeader(int(status.Load()))
		}
	}))
	s, err := New(Options{Engine: engine.URL})
	if err != nil {
		t.Fatal(err)
	}
	f := func(what string, code int, why string) {
		t.Helper()
		w := httptest.NewRecorder()
		s.Ready(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if w.Code != code || !strings.Contains(w.Body.String(), why) {
			t.Errorf("%s: %d %q, want %d %q", what, w.Code, w.Body.String(), code, why)
		}
	}
	status.Store(200)
	f("well", 200, "ready")
	status.Store(503)
	f("starting", 503, "the engine's /health says 503")
	status.Store(200)
	s.Drain()
	f("draining", 503, "draining")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/models", nil))
	if w.Code != 200 || w.Header().Get("Connection") != "close" {
		t.Errorf("a request while it drains: %d, connection %q", w.Code, w.Header().Get("Connection"))
	}
	s.health.draining.Store(false)
	engine.Close()
	f("gone", 503, "the engine cannot be reached")
}

// TestRetryBudget: while prefill engines fail, at most a fifth of the requests get a second prefill
// leg, and no request is lost.
func TestRetryBudget(t *testing.T) {
	var legs atomic.Int64
	prefill := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			legs.Add(1)
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer prefill.Close()
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"choices":[{"text":"x"}]}`))
	}))
	defer engine.Close()
	s, err := New(Options{Engine: engine.URL, DeathWait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	at := strings.TrimPrefix(prefill.URL, "http://")
	const requests = 500
	for range requests {
		r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{"model":"m","prompt":"p","max_tokens":9}`))
		r.Header.Set(headerPrefiller, at+","+at)
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != http.StatusOK {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
	}
	second, denied := legs.Load()-requests, testutil.ToFloat64(s.m.unbudgeted)
	if want := int64(retry.Burst + retry.Share*requests); second < want-2 || second > want || int64(denied) != requests-second {
		t.Errorf("%d second legs and %v left out of %d requests, want about %d", second, denied, requests, want)
	}
}
