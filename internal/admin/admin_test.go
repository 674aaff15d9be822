package admin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// pages returns the pages of the administration port.
func pages(o Options) http.Handler { return handler(o, guard{}, newMetrics(nil)) }

func get(t *testing.T, h http.Handler, method, path string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(method, "http://localhost:9090"+path, nil)
	r.RemoteAddr = "127.0.0.1:1234"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestReadyzListsWhatIsNotReady(t *testing.T) {
	checks := []Check{{Name: "endpoints", Ready: true}, {Name: "knowledge", Reason: "2 of 8 endpoints catching up"}}
	h := pages(Options{Ready: func() []Check { return checks }})
	code, body := get(t, h, "GET", "/readyz")
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "[-] knowledge: 2 of 8") || strings.Contains(body, "endpoints\n") {
		t.Errorf("got %d %q", code, body)
	}
	_, body = get(t, h, "GET", "/readyz?verbose")
	if !strings.Contains(body, "[+] endpoints") {
		t.Errorf("verbose answer leaves out a ready check: %q", body)
	}
	checks[1].Ready = true
	if code, _ = get(t, h, "GET", "/readyz"); code != http.StatusOK {
		t.Errorf("all ready: got %d", code)
	}
}

func TestDecisionsRefusesNonsense(t *testing.T) {
	h := pages(Options{Decisions: func(_ context.Context, id string, n int, _ bool) (any, []string) {
		return map[string]any{"id": id, "n": n}, nil
	}})
	for _, q := range []string{"n=0", "n=x", "n=99999999"} {
		if code, _ := get(t, h, "GET", "/debug/decisions?"+q); code != http.StatusBadRequest {
			t.Errorf("%s: got %d", q, code)
		}
	}
	if _, body := get(t, h, "GET", "/debug/decisions?id=a&n=3"); !strings.Contains(body, `"n": 3`) {
		t.Errorf("got %q", body)
	}
}

func TestReloadReportsTheError(t *testing.T) {
	h := pages(Options{Reload: func(context.Context) error { return errors.New("config.yaml:3:1: no such plugin") }})
	code, body := get(t, h, "POST", "/-/reload")
	if code != http.StatusUnprocessableEntity || !strings.Contains(body, "config.yaml:3:1") {
		t.Errorf("got %d %q", code, body)
	}
}

func TestServerServesAndCloses(t *testing.T) {
	s, err := Open(Options{Bind: "127.0.0.1:0", Gatherer: prometheus.NewRegistry(), Status: func() any { return map[string]string{"x": "</script>"} }})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get("http://" + s.Addr().String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || strings.Contains(string(b), `"</script>"`) || !strings.Contains(string(b), "let status =") || !strings.Contains(string(b), `<script nonce="`) {
		t.Errorf("page: %v, status must be escaped", err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := Open(Options{Bind: "256.0.0.1:0"}); err == nil {
		t.Error("a bad address was accepted")
	}
}
