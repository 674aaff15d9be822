package scrape

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestNothingStaysOfTheGone: when an endpoint leaves, so does everything that was
// kept to read its page.
func TestNothingStaysOfTheGone(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("vllm:num_requests_waiting 0\nvllm:num_requests_running 1\n"))
	}))
	defer srv.Close()
	p, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	pool, eps := fleetOf(srv.Listener.Addr().String())
	pool.Subscribe(p.Apply)
	if _, err := p.Refresh(t.Context(), eps[0]); err != nil {
		t.Fatal(err)
	}
	kept := weakTransport(t, p)
	pool.Set(nil)
	for end := time.Now().Add(testkit.HangTimeout); kept.Value() != nil; runtime.GC() {
		if time.Now().After(end) {
			t.Fatal("the transport of an endpoint that is gone is still held")
		}
		runtime.Gosched()
	}
}

// weakTransport returns a weak pointer to the first endpoint's transport, which shows whether it is
// still referenced.
func weakTransport(t *testing.T, p *Poller) weak.Pointer[transport] {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	own, ok := p.targets[0].transport.(*transport)
	if !ok {
		t.Fatal("the endpoint has no transport of its own")
	}
	return weak.Make(own)
}
