package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/monitor"
)

// TestEngineKey: requests to an engine with an API key carry the key. After a reload they carry the
// new key in its file.
func TestEngineKey(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") && r.Header.Get("Authorization") != "Bearer second" {
			http.Error(w, `{"error":"Unauthorized"}`, http.StatusUnauthorized)
			return
		}
		switch r.URL.Path {
		case "/v1/models":
			fmt.Fprint(w, `{"data":[{"id":"m"}]}`)
		case "/v1/completions":
			fmt.Fprint(w, `{"choices":[{"text":"4"}]}`)
		case "/metrics":
			fmt.Fprint(w, "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n")
		}
	}))
	t.Cleanup(engine.Close)
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	host, port, _ := strings.Cut(engine.Listener.Addr().String(), ":")
	o := Options{
		Name: "r", Version: "dev", Listen: "127.0.0.1:0", Health: "-", Admin: "127.0.0.1:0",
		Endpoints:     write("endpoints.yaml", fmt.Sprintf("endpoints: [{name: e, address: %s, port: %s}]\n", host, port)),
		EngineKeyFile: write("key", "first\n"),
	}
	s := open(t, o)
	ep := s.pool.Snapshot().Endpoints[0]
	probe := func() monitor.Result {
		return monitor.NewProber("http", s.engines.client(monitor.NewClient())).Probe(context.Background(), ep)
	}
	if got := probe(); got == monitor.Passed {
		t.Error("a probe passes with another key")
	}
	write("key", "second\n")
	if err := s.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := probe(); got != monitor.Passed {
		t.Errorf("with the key a probe is %v", got)
	}
	testkit.Await(t, "the engine's models are known", func() bool {
		models := s.pool.Snapshot().Models()
		return len(models) == 1 && models[0].Name == "m"
	})
	write("key", "two words\n")
	if err := s.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "not a valid key") {
		t.Errorf("a file without a key: %v", err)
	}
	if got := probe(); got != monitor.Passed {
		t.Errorf("after it a probe is %v", got)
	}
}
