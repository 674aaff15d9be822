package warmup

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/monitor"
	"github.com/grapevine-epp/grapevine/picker/request"
)

type headers map[string]string

func (h headers) Get(name string) string { return h[name] }

// engine returns a sender and an endpoint served by handle.
func engine(t *testing.T, o Options, handle http.HandlerFunc) (*Sender, *endpoint.Endpoint) {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set([]endpoint.Spec{{Name: "e", Addr: netip.MustParseAddrPort(server.Listener.Addr().String())}})
	o.Client = monitor.NewClient()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, pool.Snapshot().Endpoints[0]
}

func chat(t *testing.T, body string) *request.Request {
	t.Helper()
	r := &request.Request{
		Path: "/v1/chat/completions", Body: []byte(body), Copyable: true,
		Headers: headers{"authorization": "Bearer k", "cookie": "c", "x-session-id": "s"},
	}
	if err := request.Parse(r); err != nil {
		t.Fatal(err)
	}
	r.Target = r.Model
	return r
}

const hello = `{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true}`

// TestSend checks which parts of the client's request an engine receives.
func TestSend(t *testing.T) {
	got := make(chan []string, 1)
	reg := prometheus.NewRegistry()
	s, ep := engine(t, Options{Registerer: reg}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- []string{r.Method, r.URL.String(), string(body), r.Header.Get("Authorization"), r.Header.Get("Content-Type"), r.Header.Get("Cookie") + r.Header.Get("X-Session-Id")}
	})
	r := chat(t, hello)
	if !s.Takes(r) {
		t.Fatal("request was not accepted")
	}
	r.Target = "other"
	status := make(chan int, 1)
	if !s.Send(&picker.WarmUp{Request: r, Decision: &request.Decision{}, Endpoint: ep, Work: endpoint.Work{Input: 10, New: 7}}, func(_ time.Time, n int) { status <- n }) {
		t.Fatal("warm-up was not sent")
	}
	clear(r.Body) // the buffer belongs to the proxy again
	want := []string{"POST", "/v1/chat/completions", `{"model":"other","messages":[{"role":"user","content":"hello"}],"max_tokens":1}`, "Bearer k", "application/json", ""}
	if d := cmp.Diff(want, <-got); d != "" {
		t.Error(d)
	}
	if n := <-status; n != 200 {
		t.Errorf("ended with %d", n)
	}
	const metrics = `
# HELP grapevine_warmup_requests_total Warm-ups that ended, by result: answered, failed (any status but 2xx), or unanswered within 30 s.
# TYPE grapevine_warmup_requests_total counter
grapevine_warmup_requests_total{result="answered"} 1
grapevine_warmup_requests_total{result="failed"} 0
grapevine_warmup_requests_total{result="unanswered"} 0
# HELP grapevine_warmup_tokens_total Prompt tokens of warm-ups sent, excluding those known to be cached at the endpoint.
# TYPE grapevine_warmup_tokens_total counter
grapevine_warmup_tokens_total 7
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(metrics), "grapevine_warmup_requests_total", "grapevine_warmup_tokens_total"); err != nil {
		t.Error(err)
	}
}

func TestTakes(t *testing.T) {
	s, _ := engine(t, Options{}, nil)
	f := func(want bool, path, body string, change func(*request.Request)) {
		t.Helper()
		r := chat(t, hello)
		r.Path, r.Body = path, []byte(body)
		if err := request.Parse(r); err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(r)
		}
		if s.Takes(r) != want {
			t.Errorf("%s %s: Takes() = %v", path, body, !want)
		}
	}
	f(true, "/v1/chat/completions", hello, nil)
	f(true, "/v1/completions", `{"model":"m","prompt":"p"}`, nil)
	f(true, "/v1/completions", `{"model":"m","prompt":[1,2]}`, nil)
	f(false, "/v1/completions", `{"model":"m","prompt":["p","q"]}`, nil)
	f(false, "/v1/completions", `{"model":"m","prompt":"p","echo":true,"logprobs":1}`, nil)
	f(false, "/v1/embeddings", `{"model":"m","input":"p"}`, nil)
	f(false, "/v1/responses", `{"model":"m","input":"p"}`, nil)
	f(false, "/v1/completions", `{"model":"m","prompt":"p"}`, func(r *request.Request) { r.Copyable = false })
	f(false, "/v1/completions", `{"model":"m","prompt":"p"}`, func(r *request.Request) { r.KVTransfer = true })
	f(false, "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"`+strings.Repeat("x y ", maxBody/4)+`"}]}`, nil)
}

// TestFailures: an engine that fails, redirects or hangs gets one request, is counted, and delays
// nothing.
func TestFailures(t *testing.T) {
	asked := make(chan string, most+2)
	hold := make(chan struct{})
	answer := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case strings.Contains(string(body), "fail"):
			w.WriteHeader(http.StatusServiceUnavailable)
		case strings.Contains(string(body), "redirect"):
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		case strings.Contains(string(body), "hang"):
			asked <- "hangs"
			select {
			case <-hold:
			case <-r.Context().Done():
			}
			return
		}
		asked <- r.URL.Path
	}
	memory := budget.New(1 << 20)
	s, ep := engine(t, Options{Budget: memory}, answer)
	defer close(hold)
	ends := make(chan int, most+2)
	send := func(word string) bool {
		r := chat(t, strings.ReplaceAll(hello, "hello", word))
		return s.Send(&picker.WarmUp{Request: r, Decision: &request.Decision{}, Endpoint: ep}, func(_ time.Time, n int) { ends <- n })
	}
	for word, want := range map[string]int{"fail": 503, "redirect": 307} {
		if !send(word) {
			t.Fatalf("%s: not sent", word)
		}
		if n := <-ends; n != want {
			t.Errorf("%s: ended with %d", word, n)
		}
		if path := <-asked; path != "/v1/chat/completions" {
			t.Errorf("%s: asked for %s", word, path)
		}
	}
	testkit.Await(t, "nothing under way", func() bool { return s.running.Load() == 0 && memory.Used(budget.Records) == 0 })
	for n := range most {
		if !send("hang") {
			t.Fatalf("warm-up after %d was not sent", n)
		}
	}
	if send("one more") || s.Takes(chat(t, hello)) {
		t.Error("more warm-ups sent than the limit")
	}
	for range most {
		if what := <-asked; what != "hangs" {
			t.Errorf("engine was asked for %s", what)
		}
	}
	s.Close() // cancels them
	for range most {
		if n := <-ends; n != 0 {
			t.Errorf("ended with %d", n)
		}
	}
	if send("hello") {
		t.Error("warm-up sent after Close")
	}
	if n := memory.Used(budget.Records); n != 0 {
		t.Errorf("%d bytes still reserved", n)
	}
	for reason, want := range map[int]float64{busy: 1, closing: 1, noMemory: 0, unreadable: 0} {
		if n := testutil.ToFloat64(s.metrics.dropped[reason]); n != want {
			t.Errorf("%s: %v were dropped, want %v", reasons[reason], n, want)
		}
	}
	for result, want := range map[int]float64{answered: 0, failed: 2, unanswered: most} {
		if n := testutil.ToFloat64(s.metrics.sent[result]); n != want {
			t.Errorf("%s: %v, want %v", results[result], n, want)
		}
	}
}

func TestNoMemory(t *testing.T) {
	s, ep := engine(t, Options{Budget: budget.New(1 << 10)}, nil)
	r := chat(t, hello)
	if s.Send(&picker.WarmUp{Request: r, Decision: &request.Decision{}, Endpoint: ep}, nil) || testutil.ToFloat64(s.metrics.dropped[noMemory]) != 1 {
		t.Error("warm-up sent without memory")
	}
}

// A body that is not completely valid JSON is not sent.
func TestUnreadable(t *testing.T) {
	s, ep := engine(t, Options{}, func(http.ResponseWriter, *http.Request) { t.Error("asked") })
	r := chat(t, hello)
	r.Body = r.Body[:len(r.Body)-3]
	end := make(chan int, 1)
	if !s.Send(&picker.WarmUp{Request: r, Decision: &request.Decision{}, Endpoint: ep}, func(_ time.Time, n int) { end <- n }) || <-end != 0 {
		t.Error("warm-up was sent, or did not end")
	}
	if n := testutil.ToFloat64(s.metrics.dropped[unreadable]); n != 1 {
		t.Errorf("%v were dropped as unreadable", n)
	}
}

// TestWaitsForTheRequest: a warm-up whose request failed reaches no engine.
func TestWaitsForTheRequest(t *testing.T) {
	for _, answered := range []bool{true, false} {
		start := make(chan bool, 1)
		s := &Sender{ctx: t.Context()}
		start <- answered
		if got := s.begins(&order{start: start}); got != answered {
			t.Errorf("request answered %v: sent %v", answered, got)
		}
	}
}
