package sidecar

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestHTTP2: requests over HTTP/2 are answered like those over HTTP/1.1, whether they are split, streamed
// or passed on. Tunnels are refused.
func TestHTTP2(t *testing.T) {
	decode := func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			t.Errorf("the engine is asked over HTTP/%d", r.ProtoMajor)
		}
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"choices":[{"delta":{"content":"x"}}]}`+"\n\n"+doneEvent)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"x"}}]}`)
	}
	s, err := New(Options{Engine: "http://" + prefiller(t, decode)})
	if err != nil {
		t.Fatal(err)
	}
	target := prefiller(t, says(http.StatusOK, soundPrefill))
	front := httptest.NewUnstartedServer(s)
	front.EnableHTTP2 = true
	front.StartTLS()
	defer front.Close()
	for _, c := range []struct{ method, path, body string }{
		{http.MethodPost, "/v1/chat/completions", `{"messages":[]}`},
		{http.MethodPost, "/v1/chat/completions", `{"messages":[],"stream":true}`},
		{http.MethodPost, "/v1/embeddings", `{"input":"x"}`},
		{http.MethodGet, "/v1/models", ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, front.URL+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(headerPrefiller, target)
		resp, err := front.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), `"x"`) {
			t.Errorf("%s %s %s: HTTP/%d, status %d, %q, %v", c.method, c.path, c.body, resp.ProtoMajor, resp.StatusCode, text, err)
		}
	}
}

// TestOwnSource: a KV source that names the proxy itself, or its engine, is no source.
func TestOwnSource(t *testing.T) {
	var got string
	engine := prefiller(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = string(body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"x"}}]}`)
	})
	s, err := New(Options{Engine: "http://" + engine, P2PPull: true})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(s)
	defer front.Close()
	own := strings.TrimPrefix(front.URL, "http://")
	for source, want := range map[string]bool{own: false, "[::ffff:127.0.0.1]:" + own[strings.LastIndex(own, ":")+1:]: false, engine: false, ":8000": false, "10.0.0.7:8000": true} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL+"/v1/chat/completions", strings.NewReader(`{"messages":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Kv-Cache-Source-Host-Port", source)
		resp, err := front.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if pulls := strings.Contains(got, "remote_kv_source"); resp.StatusCode != http.StatusOK || pulls != want {
			t.Errorf("source %s: status %d, pulls %v (%s), want %v", source, resp.StatusCode, pulls, got, want)
		}
	}
}
