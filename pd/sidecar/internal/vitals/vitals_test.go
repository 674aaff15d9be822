package vitals

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"
)

// engineOf serves status for /health and page for /metrics.
func engineOf(t *testing.T, status int, page func() string) *url.URL {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		if text := page(); text != "" {
			fmt.Fprint(w, text)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	base, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return base
}

func noPage() string { return "" }

// TestSigns: each state of an engine is told apart. Answers accepts any status; Hangs accepts only an
// engine that holds the connection until the limit.
func TestSigns(t *testing.T) {
	r := Reader{Transport: &http.Transport{DisableKeepAlives: true}}
	closed := httptest.NewServer(http.NotFoundHandler())
	refused, err := url.Parse(closed.URL)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	release := make(chan struct{})
	hung := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(func() { close(release); hung.Close() })
	silent, err := url.Parse(hung.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		base           *url.URL
		limit          time.Duration
		want           Sign
		answers, hangs bool
	}{
		"healthy":     {engineOf(t, http.StatusOK, noPage), time.Minute, Alive, true, false},
		"no such URL": {engineOf(t, http.StatusNotFound, noPage), time.Minute, Alive, true, false},
		"unhealthy":   {engineOf(t, http.StatusServiceUnavailable, noPage), time.Minute, Unhealthy, true, false},
		"refuses":     {refused, time.Minute, Down, false, false},
		"hangs":       {silent, 200 * time.Millisecond, Unknown, false, true},
	} {
		if got := r.Check(t.Context(), c.base, c.limit); got != c.want {
			t.Errorf("%s: Check() = %d, want %d", name, got, c.want)
		}
		if got := r.Answers(t.Context(), c.base, c.limit); got != c.answers {
			t.Errorf("%s: Answers() = %v, want %v", name, got, c.answers)
		}
		if got := r.Hangs(t.Context(), c.base, c.limit); got != c.hangs {
			t.Errorf("%s: Hangs() = %v, want %v", name, got, c.hangs)
		}
	}
}

// unreachable fails each connection as a host does that is gone: no connection until the limit.
type unreachable struct{}

func (unreachable) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestAbsentHost: a host that accepts no connection until the limit is absent, not hung or down.
func TestAbsentHost(t *testing.T) {
	base := &url.URL{Scheme: "http", Host: "192.0.2.1:8000"}
	if got := (Reader{unreachable{}}).Check(t.Context(), base, time.Millisecond); got != Absent {
		t.Errorf("Check() = %d, want Absent", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := (Reader{unreachable{}}).Check(ended, base, time.Minute); got != Unknown {
		t.Errorf("Check() of a request that has ended = %d, want Unknown", got)
	}
}

// TestPage: the hash follows the engine's own metrics only. A page without them has none.
func TestPage(t *testing.T) {
	var text atomic.Pointer[string]
	base := engineOf(t, http.StatusOK, func() string { return *text.Load() })
	r := Reader{http.DefaultTransport}
	page := func(s string) uint64 {
		text.Store(&s)
		return r.Page(t.Context(), base, time.Minute)
	}
	const own = "# HELP vllm:x text\nvllm:x{a=\"b\"} 1\n"
	first := page(own + "http_requests_total 1\n")
	if first == 0 || page(own+"http_requests_total 2\n") != first {
		t.Error("the hash changes with a counter of HTTP requests")
	}
	if page("vllm:x{a=\"b\"} 2\n") == first {
		t.Error("the hash does not change with the engine's own metric")
	}
	for _, none := range []string{"http_requests_total 1\n", ""} {
		if got := page(none); got != 0 {
			t.Errorf("page %q: %d, want 0", none, got)
		}
	}
}

// TestSum: counters are added over their labels and names; other metrics with the same beginning are
// not. Without any of them the sum is unknown, which is not 0.
func TestSum(t *testing.T) {
	for _, c := range []struct {
		page string
		want float64
		ok   bool
	}{
		{"a_total{x=\"1\"} 2\na_total{x=\"2\"} 3 1700000000\nb_total 4\n", 9, true},
		{"a_total 0\n", 0, true},
		{"a_total_created 5\na_totals 5\n# a_total 5\n", 0, false},
		{"a_total\na_total{} \na_total{x=\"}\"} x\n", 0, false},
		{"", 0, false},
	} {
		base := engineOf(t, http.StatusOK, func() string { return c.page })
		got, ok := (Reader{http.DefaultTransport}).Sum(t.Context(), base, time.Minute, "a_total", "b_total")
		if got != c.want || ok != c.ok {
			t.Errorf("page %q: %v, %v, want %v, %v", c.page, got, ok, c.want, c.ok)
		}
	}
}
