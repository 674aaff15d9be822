package scrape

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestSkipVerify holds that a certificate which nobody knows is refused, unless
// the user says that any will do.
func TestSkipVerify(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/own" {
			_, _ = io.WriteString(w, "vllm:num_requests_waiting 3\nvllm:num_requests_running 1\n")
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	f := func(skip, want bool) {
		t.Helper()
		p, err := Open(Options{Scheme: "https", Path: "own", SkipVerify: skip, Timeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		pool, eps := fleetOf(server.Listener.Addr().String())
		pool.Subscribe(p.Apply)
		_, err = p.Refresh(context.Background(), eps[0])
		if got := err == nil && eps[0].Gauges().Waiting == 3; got != want {
			t.Errorf("SkipVerify %v: read %v, want %v: %v", skip, got, want, err)
		}
		if !want && (err == nil || errors.Is(err, context.DeadlineExceeded)) {
			t.Errorf("SkipVerify %v: %v", skip, err)
		}
	}
	f(false, false)
	f(true, true)
}
