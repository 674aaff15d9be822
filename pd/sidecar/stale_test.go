package sidecar

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// pausing is a pair whose decode engine is stopped, or keeps a request in its queue, and reads the
// transfer afterwards.
type pausing struct {
	content time.Duration                    // of the first content, since the leg
	mute    bool                             // the decode engine is stopped until then
	frozen  bool                             // the prefill engine is stopped until then
	page    func(since time.Duration) string // the prefill engine's metrics; "": none
	fails   time.Duration                    // when a notification fails at the decode engine; 0: never
	// slowPage is the time that the prefill engine needs for its metrics.
	slowPage time.Duration
	begun    time.Time
	mu       sync.Mutex
	legs     []string // bodies at the decode engine
	gone     bool     // the decode engine refuses connections
}

// RoundTrip implements http.RoundTripper.
func (p *pausing) RoundTrip(r *http.Request) (*http.Response, error) {
	prefill := strings.HasPrefix(r.URL.Host, "10.")
	if p.gone && !prefill {
		return nil, syscall.ECONNREFUSED
	}
	switch r.URL.Path {
	case "/health":
		if (p.mute && !prefill || p.frozen && prefill) && time.Since(p.begun) < p.content {
			if err := sleep(r.Context(), p.content-time.Since(p.begun)); err != nil {
				return nil, err
			}
		}
		return said("", ""), nil
	case "/metrics":
		if p.frozen && prefill && time.Since(p.begun) < p.content {
			if err := sleep(r.Context(), p.content-time.Since(p.begun)); err != nil {
				return nil, err
			}
		}
		if text := p.page(time.Since(p.begun)); prefill && text != "" {
			if err := sleep(r.Context(), p.slowPage); err != nil {
				return nil, err
			}
			return said(text, "text/plain"), nil
		}
		if !prefill && p.fails > 0 {
			n := 0
			if time.Since(p.begun) > p.fails {
				n = 1
			}
			return said(fmt.Sprintf("%s{engine=\"0\"} %d.0\n", failureCounters[0], n), "text/plain"), nil
		}
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody}, nil
	}
	body, _ := io.ReadAll(r.Body)
	if prefill {
		return said(soundPrefill, "application/json"), nil
	}
	p.mu.Lock()
	p.legs = append(p.legs, string(body))
	p.mu.Unlock()
	text, beside := "right", strings.Contains(string(body), `"beside"`) && !strings.Contains(string(body), keySalt)
	if beside || strings.Contains(string(body), keyKVTransfer) {
		text = "pulled"
		wait := p.content
		if beside {
			wait += p.slowPage / 2
		}
		if err := sleep(r.Context(), wait); err != nil {
			return nil, err
		}
	}
	if strings.Contains(string(body), `"stream":true`) {
		resp := said(`data: {"choices":[{"delta":{"content":"`+text+`"}}]}`+"\n\n"+doneEvent, "text/event-stream")
		resp.ContentLength = -1
		return resp, nil
	}
	return said(`{"choices":[{"message":{"content":"`+text+`"}}]}`, "application/json"), nil
}

func expiredPage(n int) string {
	return fmt.Sprintf("# TYPE %[1]s counter\n%[1]s{engine=\"0\",model_name=\"m\"} %[2]d.0\n", expiredCounter, n)
}

// saltOf matches a salt of the sidecar that vLLM accepts: up to 128 characters without "@", "/", "\\" or NUL.
var saltOf = regexp.MustCompile(`"cache_salt":"[0-9a-f]{32}"`)

// TestStaleTransfers: no text that may have been computed from freed blocks reaches the client, and a
// transfer that only waited is used.
func TestStaleTransfers(t *testing.T) {
	never := func(time.Duration) string { return expiredPage(3) }
	once := func(since time.Duration) string {
		if since > 35*time.Second {
			return expiredPage(4)
		}
		return expiredPage(3)
	}
	restarts := func(since time.Duration) string {
		if since > 35*time.Second {
			return expiredPage(0)
		}
		return expiredPage(3)
	}
	none := func(time.Duration) string { return "" }
	for _, c := range []struct {
		name    string
		content time.Duration
		mute    bool
		page    func(time.Duration) string
		stale   bool
		fails   time.Duration
		frozen  bool
	}{
		{"at once, without a counter", time.Second, false, none, false, 0, false},
		{"stopped for less than the lease", 11 * time.Second, true, never, false, 0, false},
		{"stopped for two leases, nothing expired", 69 * time.Second, true, never, false, 0, false},
		{"stopped for two leases, one expired", 69 * time.Second, true, once, true, 0, false},
		{"stopped for five leases, one expired", 150 * time.Second, true, once, true, 0, false},
		{"stopped for two leases, prefill restarted", 69 * time.Second, true, restarts, true, 0, false},
		{"stopped for two leases, without a counter", 69 * time.Second, true, none, true, 0, false},
		{"only decode's core stopped, one expired", 69 * time.Second, false, once, true, 0, false},
		{"queued, nothing expired", 280 * time.Second, false, never, false, 0, false},
		{"queued, without a counter", 280 * time.Second, false, none, false, 0, false},
		{"queued, without a counter, a notification failed", 280 * time.Second, false, none, true, 35 * time.Second, false},
		{"queued, without a counter, one failed before", 280 * time.Second, false, none, false, time.Second, false},
		{"queued, nothing expired, a notification failed", 280 * time.Second, false, never, false, 35 * time.Second, false},
		{"prefill stopped for two leases", 69 * time.Second, false, once, true, 0, true},
		{"prefill stopped for two leases, without a counter", 69 * time.Second, false, none, true, 0, true},
		{"prefill stopped for less than the lease", 11 * time.Second, false, never, false, 0, true},
	} {
		for _, stream := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				p := &pausing{content: c.content, mute: c.mute, page: c.page, fails: c.fails, frozen: c.frozen, begun: time.Now()}
				s, err := New(Options{Engine: "http://127.0.0.1:8200", Transport: p, Head: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				ask := func(split bool) string {
					r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(fmt.Sprintf(`{"messages":[],"cache_salt":"a","stream":%v}`, stream)))
					if split {
						r.Header.Set(headerPrefiller, "10.0.0.1:8000")
					}
					w := httptest.NewRecorder()
					s.ServeHTTP(w, r)
					return w.Body.String()
				}
				want, legs := "pulled", 1
				if c.stale {
					want, legs = "right", 2
				}
				got := ask(true)
				if !strings.Contains(got, want) || strings.Contains(got, "pulled") == c.stale || len(p.legs) != legs {
					t.Errorf("%s, stream %v: %q after %d legs, want %q after %d", c.name, stream, got, len(p.legs), want, legs)
				}
				if got := testutil.ToFloat64(s.m.retries.WithLabelValues("stale_transfer")); (got == 1) != c.stale {
					t.Errorf("%s, stream %v: %v stale transfers are counted", c.name, stream, got)
				}
				// The wrong blocks are in decode's cache: no later request may read them.
				last := p.legs[len(p.legs)-1]
				ask(false)
				next := p.legs[len(p.legs)-1]
				if salted := saltOf.MatchString(next); salted != c.stale || c.stale && last != next {
					t.Errorf("%s, stream %v: the next leg is %s, the last %s", c.name, stream, next, last)
				}
				p.gone = true
				ask(false)
				p.gone = false
				ask(false)
				if next = p.legs[len(p.legs)-1]; !strings.Contains(next, `"cache_salt":"a"`) {
					t.Errorf("%s, stream %v: after a restart of decode, the leg is %s", c.name, stream, next)
				}
			})
		}
	}
}

// stoppedPrefill is a prefill engine that computes for a time, and is stopped for another one before its answer
// arrives.
type stoppedPrefill struct {
	computes, stops time.Duration
	begun           time.Time
	legs            []string // bodies at the decode engine
}

// RoundTrip implements http.RoundTripper.
func (p *stoppedPrefill) RoundTrip(r *http.Request) (*http.Response, error) {
	at, prefill := time.Since(p.begun), strings.HasPrefix(r.URL.Host, "10.")
	until := at
	if stopped := p.computes <= at && at < p.computes+p.stops; prefill && stopped {
		until = p.computes + p.stops
	}
	if r.URL.Path == "/health" {
		if err := sleep(r.Context(), until-at); err != nil {
			return nil, err
		}
		return said("", ""), nil
	}
	body, _ := io.ReadAll(r.Body)
	if prefill {
		if err := sleep(r.Context(), p.computes+p.stops-at); err != nil {
			return nil, err
		}
		return said(soundPrefill, "application/json"), nil
	}
	p.legs = append(p.legs, string(body))
	return said(`{"choices":[{"message":{"content":"text"}}]}`, "application/json"), nil
}

// TestLateAnswers: the answer of a prefill engine that was stopped after it had computed is not taken for a
// fresh one, and that of a slow engine is.
func TestLateAnswers(t *testing.T) {
	for _, c := range []struct {
		computes, stops time.Duration
		used            bool
	}{
		{time.Second, 0, true}, {7 * time.Second, 0, true}, {100 * time.Second, 0, true}, {29900 * time.Millisecond, 5 * time.Second, true},
		{time.Second, 31 * time.Second, false}, {30 * time.Second, 31 * time.Second, false}, {30100 * time.Millisecond, 60 * time.Second, false},
		{4900 * time.Millisecond, 60 * time.Second, false}, {5100 * time.Millisecond, 69900 * time.Millisecond, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &stoppedPrefill{computes: c.computes, stops: c.stops, begun: time.Now()}
			s, err := New(Options{Engine: "http://127.0.0.1:8200", Transport: p, Head: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[]}`))
			r.Header.Set(headerPrefiller, "10.0.0.1:8000")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			expired := testutil.ToFloat64(s.m.retries.WithLabelValues("expired"))
			if used := len(p.legs) == 1 && strings.Contains(p.legs[0], keyKVTransfer); w.Code != http.StatusOK || used != c.used || (expired == 1) == c.used {
				t.Errorf("computed for %v, stopped for %v: status %d, decode gets %v, %v expired, want the transfer used: %v", c.computes, c.stops, w.Code, p.legs, expired, c.used)
			}
		})
	}
}

// TestStaleTransferOfAnotherRequest: a request that was at the decode engine before a transfer was found
// stale may have used its blocks. Its answer is computed again.
func TestStaleTransferOfAnotherRequest(t *testing.T) {
	for _, stream := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &pausing{content: 69 * time.Second, mute: true, begun: time.Now(), page: func(since time.Duration) string { return expiredPage(int(since / (35 * time.Second))) }}
			p.slowPage = time.Second // the transfer is being verified while the other request has its first content
			s, err := New(Options{Engine: "http://127.0.0.1:8200", Transport: p, Head: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			ask := func(text string, split bool) string {
				r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(fmt.Sprintf(`{"messages":[],"user":%q,"stream":%v}`, text, stream)))
				if split {
					r.Header.Set(headerPrefiller, "10.0.0.1:8000")
				}
				w := httptest.NewRecorder()
				s.ServeHTTP(w, r)
				return w.Body.String()
			}
			var wg sync.WaitGroup
			for user, split := range map[string]bool{"split": true, "split too": true, "beside": false} {
				wg.Go(func() {
					if got := ask(user, split); !strings.Contains(got, "right") {
						t.Errorf("stream %v, %s: %s, want the right text", stream, user, got)
					}
				})
			}
			wg.Wait()
			if n := len(p.legs); n != 6 {
				t.Errorf("stream %v: %d decode legs, want each request to be computed twice: %v", stream, n, p.legs)
			}
		})
	}
}

// tainting is a pair. While the decode engine computes its first answers, transfers of other requests are found
// stale.
type tainting struct {
	s     *Server
	times int
	salts []string // of the decode legs
}

func (e *tainting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet { // health checks
		return said("", ""), nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(r.URL.Host, "10.") {
		return said(soundPrefill, "application/json"), nil
	}
	var q struct {
		Salt string `json:"cache_salt"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, err
	}
	if e.salts = append(e.salts, q.Salt); len(e.salts) <= e.times {
		used := ""
		if salt := e.s.salt.Load(); salt != nil {
			used = *salt
		}
		e.s.taint(used)
	}
	return said(`{"choices":[{"message":{"content":"right"}}]}`, "application/json"), nil
}

// TestStaleTransfersInARow: transfers of other requests are found stale before a request's content, one after
// another. Its answer is computed again, each time with another salt, and the client always gets one.
func TestStaleTransfersInARow(t *testing.T) {
	for _, c := range []struct {
		name        string
		split       bool
		times, legs int
	}{
		{"whole", false, 0, 1},
		{"whole", false, 1, 2},
		{"whole", false, 2, 3},
		{"whole", false, 9, 3},
		{"split", true, 0, 1},
		{"split", true, 1, 2},
		{"split", true, 2, 3},
		{"split", true, 3, 4},
		{"split", true, 9, 4},
		{"transfer too old", true, 0, 1},
		{"transfer too old", true, 1, 2},
		{"transfer too old", true, 9, 3},
		{"source of blocks", false, 1, 2},
		{"source of blocks", false, 9, 4},
	} {
		e := &tainting{times: c.times}
		o := Options{Engine: "http://127.0.0.1:8200", Transport: e, Head: time.Hour, P2PPull: c.name == "source of blocks"}
		if c.name == "transfer too old" {
			var hours atomic.Int64
			o.Now = func() time.Time { return time.Unix(3600*hours.Add(1), 0) }
		}
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		e.s = s
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[]}`))
		if c.split {
			r.Header.Set(headerPrefiller, "10.0.0.1:8000")
		}
		if c.name == "source of blocks" {
			r.Header.Set(request.HeaderKVSource, "10.0.0.2:8000")
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "right") {
			t.Errorf("%s, %d stale transfers: %d %s, want an answer", c.name, c.times, w.Code, w.Body)
		}
		seen := map[string]bool{}
		for _, salt := range e.salts {
			seen[salt] = true
		}
		if len(e.salts) != c.legs || len(seen) != c.legs {
			t.Errorf("%s, %d stale transfers: legs with the salts %q, want %d different ones", c.name, c.times, e.salts, c.legs)
		}
	}
}
