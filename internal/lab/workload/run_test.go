package workload

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

func engines(t *testing.T, n int) *fleet.Fleet {
	t.Helper()
	f, err := fleet.Open(fleet.Options{Engines: n, Engine: sim.Options{Speed: math.Inf(1)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func newClient(t *testing.T, addr string) *Client {
	c := NewClient("http://"+addr, 32)
	t.Cleanup(c.Close)
	return c
}

// small divides the lengths and pauses of a kind for quick tests.
func small(k Kind, by int) Kind {
	k.SharedTokens /= by
	k.UserTokens = max(1, k.UserTokens/by)
	k.Answer = max(1, k.Answer/by)
	k.Think = 0
	return k
}

// TestRun plays every kind against one engine with an unlimited cache. All answers are correct, and
// the hit ratio equals the ideal one.
func TestRun(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.Name, func(t *testing.T) {
			f := engines(t, 1)
			r, err := Start(Options{
				Source: NewSource(small(k, 8), 3, vocab.Name, 0.3), Client: newClient(t, f.Engines()[0].Addr()),
				Ideal: NewIdeal(vocab.New(), 16), Users: 4, Requests: 60, Timeout: time.Minute,
			})
			if err != nil {
				t.Fatal(err)
			}
			r.Wait()
			got := r.Totals()
			if got.Requests != 60 || got.Errors+got.Wrong+got.Aborted > 0 || got.Active != 0 {
				t.Fatalf("%+v, last error %v", got, r.LastError())
			}
			if math.Abs(got.HitRatio()-got.IdealRatio()) > 0.02 {
				t.Errorf("hit ratio %.3f, ideal %.3f", got.HitRatio(), got.IdealRatio())
			}
			if k.Turns > 1 && got.HitRatio() < 0.4 {
				t.Errorf("hit ratio %.3f of a workload that repeats itself", got.HitRatio())
			}
			if e := got.Engines["engine-0"]; e.Requests != 60 || e.HitRatio() != got.HitRatio() {
				t.Errorf("engines %+v", got.Engines)
			}
			if got.TTFT.Count() == 0 || got.TTFT.Count() == 60 || got.TTFT.Quantile(.9) <= 0 {
				t.Errorf("TTFT: %d, p90 %v", got.TTFT.Count(), got.TTFT.Quantile(.9))
			}
		})
	}
}

// TestOpenLoopWithAborts checks that cancelled requests leave no state behind.
func TestOpenLoopWithAborts(t *testing.T) {
	f, err := fleet.Open(fleet.Options{Engine: sim.Options{Speed: 20}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := Start(Options{
		Source: NewSource(small(Chat, 4), 1, vocab.Name, 0.5), Client: newClient(t, f.Engines()[0].Addr()),
		Rate: 100, Sessions: 40, AbortShare: 0.5, AbortAfter: 20 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Wait()
	if got := r.Totals(); got.Errors+got.Wrong > 0 || got.Aborted == 0 || got.Requests == 0 || got.Active != 0 {
		t.Errorf("%d requests, %d aborted, %d errors, %d wrong: %v", got.Requests, got.Aborted, got.Errors, got.Wrong, r.LastError())
	}
	for end := time.Now().Add(testkit.HangTimeout); ; time.Sleep(time.Millisecond) {
		s := f.Engines()[0].Stats()[0].Engine
		if s.Running+s.Waiting == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("left behind: %+v", s)
		}
	}
}

func TestStop(t *testing.T) {
	f := engines(t, 1)
	f.Engines()[0].Hang(faults.HangEngine)
	r, err := Start(Options{Source: NewSource(Chat, 1, vocab.Name, 0), Client: newClient(t, f.Engines()[0].Addr()), Users: 3})
	if err != nil {
		t.Fatal(err)
	}
	for r.Totals().Active < 3 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	r.Stop(ctx)
	if got := r.Totals(); got.Aborted != 3 || got.Active != 0 {
		t.Errorf("%+v", got)
	}
}

// spoiler is a proxy that changes answers.
type spoiler struct {
	url      string
	request  func([]byte) []byte
	response func([]byte) []byte
}

func (s *spoiler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if s.request != nil {
		body = s.request(body)
	}
	req, _ := http.NewRequestWithContext(r.Context(), r.Method, s.url+r.URL.Path, bytes.NewReader(body))
	req.Header = r.Header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	body, _ = io.ReadAll(resp.Body)
	if s.response != nil {
		body = s.response(body)
	}
	for k, v := range resp.Header {
		if k != "Content-Length" {
			w.Header()[k] = v
		}
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(body)
}

// TestWrongAnswersAreSeen checks that the client detects each kind of wrong answer.
func TestWrongAnswersAreSeen(t *testing.T) {
	f := engines(t, 1)
	replace := func(was, now string) func([]byte) []byte {
		return func(b []byte) []byte { return bytes.Replace(b, []byte(was), []byte(now), 1) }
	}
	cut := func(b []byte) []byte { return b[:len(b)*2/3] }
	lastEvent := func(b []byte) []byte { return b[:bytes.LastIndex(b, []byte("data: "))] }
	for name, c := range map[string]struct {
		s      spoiler
		stream bool
		wrong  bool
	}{
		"nothing":                  {spoiler{}, true, false},
		"nothing, whole":           {spoiler{}, false, false},
		"request":                  {spoiler{request: replace("max_tokens", "MAX_tokens")}, true, true},
		"spelling of a stream":     {spoiler{response: replace(`"index":0`, `"index": 0`)}, true, true},
		"spelling of an answer":    {spoiler{response: replace(`"index":0`, `"index": 0`)}, false, true},
		"stream cut":               {spoiler{response: cut}, true, true},
		"stream without its end":   {spoiler{response: lastEvent}, true, true},
		"answer cut":               {spoiler{response: cut}, false, true},
		"answer of another prompt": {spoiler{request: replace(" ", "  ")}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			c.s.url = "http://" + f.Engines()[0].Addr()
			srv := httptest.NewServer(&c.s)
			defer srv.Close()
			whole := 1.0
			if c.stream {
				whole = 0
			}
			turn, _ := NewSource(small(Chat, 10), 9, vocab.Name, whole).Session(0).Next("")
			o := newClient(t, strings.TrimPrefix(srv.URL, "http://")).Do(context.Background(), turn)
			if o.Wrong != c.wrong || (o.Err != nil) != c.wrong || c.wrong && !errors.Is(o.Err, ErrWrong) {
				t.Errorf("wrong %v, %v", o.Wrong, o.Err)
			}
		})
	}
}

func TestStatusIsAnError(t *testing.T) {
	f := engines(t, 1)
	f.Engines()[0].SetFaults(faults.Faults{ErrorNext: 1, ErrorStatus: 503})
	turn, _ := NewSource(Chat, 9, vocab.Name, 0).Session(0).Next("")
	o := newClient(t, f.Engines()[0].Addr()).Do(context.Background(), turn)
	if o.Err == nil || o.Wrong || o.Status != 503 {
		t.Errorf("%+v", o)
	}
}

func TestOptions(t *testing.T) {
	s, c := NewSource(Chat, 1, "m", 0), NewClient("http://127.0.0.1:1", 1)
	for _, o := range []Options{{}, {Source: s, Client: c}, {Source: s, Client: c, Users: 1, Rate: 1}, {Source: s, Users: 1}} {
		if _, err := Start(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
