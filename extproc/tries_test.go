package extproc_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// breaking is an engine that reads a request and breaks off before its answer.
func breaking(t *testing.T, asked *atomic.Int32) (address string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = c.Close()
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// TestEnvoyTries: if an engine fails after it has begun a request, Envoy retries once if the picker
// permits it. If the picker forbids retries, Envoy does not retry even if no engine has begun.
func TestEnvoyTries(t *testing.T) {
	for _, kind := range []envoyconf.Kind{envoyconf.Resilient, envoyconf.Gateway} {
		t.Run(string(kind), func(t *testing.T) {
			var asked [2]atomic.Int32
			broken := []string{breaking(t, &asked[0]), breaking(t, &asked[1])}
			dead := parts.FreeAddress(t)
			r := newRig(t, rigOptions{params: envoyconf.Params{Kind: kind, Endpoints: append(broken, dead)}, tls: listen.TLS{Plaintext: true}})
			well := r.book.endpoints[0]
			for _, c := range []struct {
				what           string
				tries          request.Tries
				list           []string
				status         int
				first, another int32 // tries at the engines that break off
			}{
				{"safe: it has begun", request.TriesSafe, []string{broken[0], well}, 503, 1, 0},
				{"safe: it has not", request.TriesSafe, []string{dead, well}, 200, 0, 0},
				{"once", request.TriesOnce, []string{broken[0], well}, 200, 1, 0},
				{"once, of two that break off", request.TriesOnce, []string{broken[0], broken[1], well}, 503, 1, 1},
				{"once, and not begun", request.TriesOnce, []string{dead, well}, 200, 0, 0},
				{"never", request.TriesNone, []string{broken[0], well}, 503, 1, 0},
				{"never, though not begun", request.TriesNone, []string{dead, well}, 503, 0, 0},
			} {
				asked[0].Store(0)
				asked[1].Store(0)
				r.book.set(func(b *book) { b.endpoints, b.tries = c.list, c.tries })
				resp, _, err := r.do(context.Background(), call{size: 2000, answer: 10, model: "m"})
				if err != nil {
					t.Errorf("%s: %v", c.what, err)
					continue
				}
				if a, b := asked[0].Load(), asked[1].Load(); resp.StatusCode != c.status || a != c.first || b != c.another {
					t.Errorf("%s: status %d after %d and %d tries, want %d after %d and %d", c.what, resp.StatusCode, a, b, c.status, c.first, c.another)
				}
				r.book.settle(t)
			}
		})
	}
}

// TestEnvoyRetriesRefusals: Envoy retries a 429 of the first destination only if the picker
// requests it. Then the first destination is in another cluster, and the next one in this cluster.
func TestEnvoyRetriesRefusals(t *testing.T) {
	for _, kind := range []envoyconf.Kind{envoyconf.Resilient, envoyconf.Gateway} {
		t.Run(string(kind), func(t *testing.T) {
			full := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				for name := range r.Header {
					if strings.HasPrefix(strings.ToLower(name), "x-envoy-retr") {
						t.Errorf("the engine received %s", name)
					}
				}
				w.WriteHeader(http.StatusTooManyRequests)
			}))
			t.Cleanup(full.Close)
			address := strings.TrimPrefix(full.URL, "http://")
			r := newRig(t, rigOptions{params: envoyconf.Params{Kind: kind, Endpoints: []string{address}}, tls: listen.TLS{Plaintext: true}})
			well := r.book.endpoints[0]
			for retry, want := range map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests} {
				r.book.set(func(b *book) { b.endpoints, b.refusals = []string{address, well}, retry })
				resp, _, err := r.do(context.Background(), call{size: 2000, answer: 10, model: "m"})
				if err != nil {
					t.Fatal(err)
				}
				if resp.StatusCode != want {
					t.Errorf("retry %t: status %d, want %d", retry, resp.StatusCode, want)
				}
				r.book.settle(t)
			}
		})
	}
}
