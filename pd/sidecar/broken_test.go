package sidecar

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestBrokenByLivingEngine: an engine that was stopped for a while, or is busy, closes connections whose requests
// it has not read. It lives, so the request is sent again, once.
func TestBrokenByLivingEngine(t *testing.T) {
	for _, c := range []struct {
		broken int32 // legs whose connection breaks
		split  bool
		want   int
		legs   int32 // one more if a connection had been idle
	}{
		{0, false, http.StatusOK, 1},
		{1, false, http.StatusOK, 2},
		{9, false, http.StatusServiceUnavailable, 2},
		{0, true, http.StatusOK, 1},
		{1, true, http.StatusOK, 2},
		{2, true, http.StatusOK, 3},
		{9, true, http.StatusServiceUnavailable, 3},
	} {
		for _, stream := range []bool{false, true} {
			var legs atomic.Int32
			decode := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				if legs.Add(1) <= c.broken {
					panic(http.ErrAbortHandler)
				}
				if stream {
					w.Header().Set("Content-Type", "text/event-stream")
					fmt.Fprint(w, `data: {"choices":[{"delta":{"content":"right"}}]}`+"\n\n"+doneEvent)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"choices":[{"message":{"content":"right"}}]}`)
			}))
			prefill := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, soundPrefill) }))
			s, err := New(Options{Engine: decode.URL, Head: time.Hour, DeathWait: 10 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(fmt.Sprintf(`{"messages":[],"stream":%v}`, stream)))
			if c.split {
				r.Header.Set(headerPrefiller, prefill.Listener.Addr().String())
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != c.want || legs.Load() < c.legs || legs.Load() > c.legs+1 || strings.Contains(w.Body.String(), "right") != (c.want == http.StatusOK) {
				t.Errorf("%d broken legs, split %v, stream %v: %d %s after %d legs, want %d after %d", c.broken, c.split, stream, w.Code, w.Body, legs.Load(), c.want, c.legs)
			}
			decode.Close()
			prefill.Close()
		}
	}
}
