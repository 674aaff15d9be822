package sidecar

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestRanks: requests reach the rank that the picker names, at any port of the proxy. A client's
// own rank header reaches no leg of a split request.
func TestRanks(t *testing.T) {
	ranks := Ranks{Port: 8000}
	for i := range 3 {
		engine := prefiller(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"engine":%d,"rank":%q}`, i, r.Header.Get(headerRank))
		})
		s, err := New(Options{Engine: "http://" + engine})
		if err != nil {
			t.Fatal(err)
		}
		ranks.Servers = append(ranks.Servers, s)
	}
	prefill := prefiller(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(headerRank) != "" {
			t.Error("a client's rank reaches the prefill engine")
		}
		_, _ = io.WriteString(w, soundPrefill)
	})
	f := func(port int, named, prefiller string, status int, want string) {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{"prompt":"x"}`))
		r.Header.Set(headerRank, "7")
		r.Header.Set("X-Data-Parallel-Host-Port", named)
		r.Header.Set(headerPrefiller, prefiller)
		w := httptest.NewRecorder()
		if ranks.At(port).ServeHTTP(w, r); w.Code != status || status == 200 && w.Body.String() != want || status != 200 && !strings.Contains(w.Body.String(), want) {
			t.Errorf("rank %d, %q, split %v: %d %s, want %s", port, named, prefiller != "", w.Code, w.Body, want)
		}
	}
	f(0, "", "", 200, `{"engine":0,"rank":"7"}`)
	f(2, "", "", 200, `{"engine":2,"rank":"7"}`)
	f(0, "10.0.0.9:8001", "", 200, `{"engine":1,"rank":"7"}`)
	f(1, "[fd00::9]:8002", prefill, 200, `{"engine":2,"rank":""}`)
	for _, bad := range []string{"10.0.0.9:8003", "10.0.0.9:7999", "10.0.0.9", "x", "8001"} {
		f(0, bad, prefill, 400, "this sidecar does not serve the data-parallel rank chosen by the picker")
	}
}
