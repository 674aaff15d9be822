package sidecar

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// TestBodiesOfLegs: for any lengths, with reused buffers, each leg has its own request's bytes:
// split, whole and forwarded. Other legs are cancelled by their clients at the same time, or
// answered by engines that read no body.
func TestBodiesOfLegs(t *testing.T) {
	check := func(r *http.Request) error { // "." is asked for where blocks are given up
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil // the client has left
		}
		o, err := kvtransfer.Parse(text)
		if err != nil {
			return fmt.Errorf("%w: %.80s … %d bytes", err, text, len(text))
		}
		name := kvtransfer.Text(o.Get("model"))
		if prompt := kvtransfer.Text(o.Get("prompt")); prompt != "." && prompt != strings.Repeat(name, len(prompt)/max(len(name), 1)) || name != r.Header.Get("X-Name") {
			return fmt.Errorf("request %s has the model %q and %.40q… of %d bytes", r.Header.Get("X-Name"), name, prompt, len(prompt))
		}
		return nil
	}
	engine := func(answer string) string {
		return prefiller(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Early") != "" {
				w.Header().Set("Connection", "close")
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			if err := check(r); err != nil {
				t.Error(err)
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answer)
		})
	}
	target := engine(soundPrefill)
	s, err := New(Options{Engine: "http://" + engine(`{"choices":[]}`)})
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(s)
	defer proxy.Close()
	var clients sync.WaitGroup
	for n := range 6 {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		clients.Go(func() {
			for k := range 60 {
				name := fmt.Sprintf("n%dk%d-", n, k)
				body := fmt.Sprintf(`{"model":%q, "prompt":%q}`, name, strings.Repeat(name, 1+rng.IntN(1<<rng.IntN(15))))
				path := "/v1/completions"
				if rng.IntN(4) == 0 {
					path = "/v1/embeddings"
				}
				ctx, cancel := context.WithCancel(t.Context())
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, proxy.URL+path, strings.NewReader(body))
				if err != nil {
					t.Error(err)
				}
				r.Header.Set("X-Name", name)
				if rng.IntN(2) == 0 {
					r.Header.Set(headerPrefiller, target)
				}
				switch rng.IntN(6) {
				case 0:
					r.Header.Set("X-Early", "yes")
				case 1:
					go cancel()
				}
				if resp, err := http.DefaultClient.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				cancel()
			}
		})
	}
	clients.Wait()
}
