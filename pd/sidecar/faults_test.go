package sidecar

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// prefiller is a prefill engine with one fault.
func prefiller(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set(request.HeaderFaults, "0=broken") // a header from an engine must be ignored
		w.Header().Set(request.HeaderKVTransfer, "1;failed=1")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// TestFaultsAreReported: the answer reports which prefill engines failed and why, by their index in the
// request's list. It reports neither errors of clients nor requests that an engine rejected as
// invalid.
func TestFaultsAreReported(t *testing.T) {
	const whole = `{"choices":[{"message":{"content":"x"}}],"kv_transfer_params":{"remote_block_ids":[[1]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}}`
	good := prefiller(t, says(200, whole))
	refuses := parts.FreeAddress(t)
	hangs := prefiller(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() })
	cuts := prefiller(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "{")
		panic(http.ErrAbortHandler)
	})
	engine := httptest.NewServer(says(200, whole))
	defer engine.Close()
	passed, err := New(Options{Engine: engine.URL})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	if passed.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/models", nil)); w.Header().Get(request.HeaderFaults)+w.Header().Get(request.HeaderKVTransfer) != "" {
		t.Errorf("an engine reports: %v", w.Header())
	}
	for _, c := range []struct {
		name    string
		targets []string
		change  func(*Options)
		status  int
		want    string
	}{
		{"well", []string{good}, nil, 200, ""},
		{"refuses", []string{refuses, good}, nil, 200, "0=refused"},
		{"hangs", []string{hangs, good}, nil, 200, "0=timeout"},
		{"breaks off", []string{cuts, good}, nil, 200, "0=broken"},
		{"fails, and the next talks nonsense", []string{prefiller(t, says(500, "")), prefiller(t, says(200, "<html>"))}, nil, 200, "0=status_5xx,1=garbage"},
		{"has no room", []string{prefiller(t, says(503, "")), good}, nil, 200, "0=busy"},
		{"finds the request wrong", []string{prefiller(t, says(400, "{}"))}, nil, 200, ""},
		{"nobody else", []string{refuses, refuses}, func(o *Options) { o.NoFallback = true }, 503, "0=refused,1=refused"},
		{"the second first", []string{good, refuses}, func(o *Options) { o.Sample, o.Random = true, func() uint64 { return 1 } }, 200, "1=refused"},
		{"in a room", []string{refuses, refuses}, func(o *Options) { o.Connector, o.Engine = SGLang, "http://"+hangs }, 503, "0=refused,1=refused"},
		{"an engine that cannot be reached", []string{refuses}, func(o *Options) { o.Engine = "http://" + refuses }, 503, "0=refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Engine: engine.URL, Prefill: time.Minute}
			if c.name == "hangs" {
				o.Prefill = 2 * time.Second // for all targets: the second needs a part
			}
			if c.change != nil {
				c.change(&o)
			}
			s, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[]}`))
			r.Header.Set(headerPrefiller, strings.Join(c.targets, ","))
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if got := w.Header().Get(request.HeaderFaults); w.Code != c.status || got != c.want {
				t.Errorf("status %d, faults %q, want %d, %q: %s", w.Code, got, c.status, c.want, w.Body)
			}
		})
	}
}
