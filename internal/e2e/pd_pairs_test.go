package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/server"
)

// TestPairBreaker: of two prefill engines, one hands nothing over. After three requests its pair is off,
// status names the problem, and almost all requests use the other one. Once it works, it is used again.
func TestPairBreaker(t *testing.T) {
	var mute atomic.Bool
	mute.Store(true)
	var bad string
	r := openPDBehind(t, 2, 1, patience, func(i int, engine string) string {
		if i > 0 {
			return engine
		}
		forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: engine})
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || !mute.Load() {
				forward.ServeHTTP(w, r)
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"choices":[{"text":"x"}],"kv_transfer_params":null}`)
		}))
		t.Cleanup(front.Close)
		bad = strings.TrimPrefix(front.URL, "http://")
		return bad
	}, rigOptions{})
	pair := func() (p server.PairStatus) {
		if st := r.servers[0].Status().PD; st != nil {
			for _, one := range st.Pairs {
				if one.Prefill == bad {
					return one
				}
			}
		}
		return p
	}
	sent := 0
	send := func(n int) {
		for range n {
			sent++
			if got := r.stream(strings.Repeat(fmt.Sprintf("prompt %d of a pair. ", sent), 20)); got.status != http.StatusOK {
				t.Fatalf("request %d: %+v", sent, got)
			}
		}
		r.settle()
	}
	for pair().Failed < 3 && sent < 100 {
		send(1)
	}
	if p := pair(); p.State != "nothing_handed_over" || p.Failed != 3 {
		t.Fatalf("after %d requests: %+v, want the pair to be off after 3 failures", sent, p)
	}
	named := false
	for _, f := range r.servers[0].Status().Problems {
		named = named || f.Code == problems.PairNothing && strings.Contains(f.Summary(), bad)
	}
	if !named {
		t.Errorf("status names no %s of %s: %+v", problems.PairNothing, bad, r.servers[0].Status().Problems)
	}
	send(63)
	if p := pair(); p.Failed > 4 {
		t.Errorf("%d of 63 requests used the pair that is off, want a trial at most", p.Failed-3)
	}
	mute.Store(false)
	for pair().State != "works" && sent < 500 {
		send(8)
	}
	if p := pair(); p.State != "works" {
		t.Errorf("after %d requests: %+v, want the pair to be on", sent, p)
	}
}
