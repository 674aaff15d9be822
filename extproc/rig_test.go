package extproc_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// book is a chooser that sends every request to a fixed list and counts the requests in flight.
type book struct {
	mu        sync.Mutex
	endpoints []string
	rename    string
	priority  int64               // 0: none is written
	answer    []request.HeaderSet // for the answers
	wantBody  bool
	tries     request.Tries
	refusals  bool // retry refusals
	delay     time.Duration
	refuse    map[string]request.Reason // by model
	leaves    int                       // so many requests are refused, as by a replica that shuts down
	inFlight  int
	twice     int // releases of a request that was released before
	requests  []request.Request
	outcomes  []request.Outcome
	events    []request.Event
}

func (b *book) Choose(ctx context.Context, r *request.Request) (*request.Decision, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if reason, ok := b.refuse[r.Model]; ok {
		return nil, request.Errorf(reason, "refused for the test")
	}
	if b.leaves > 0 && r.Moves {
		b.leaves--
		return nil, request.Errorf(request.ReasonShuttingDown, "refused for the test")
	}
	if b.delay > 0 {
		b.mu.Unlock()
		select {
		case <-time.After(b.delay):
		case <-ctx.Done():
		}
		b.mu.Lock()
		if ctx.Err() != nil {
			return nil, request.Errorf(request.ReasonCancelled, "gone")
		}
	}
	b.inFlight++
	kept := *r
	kept.Body, kept.Headers = bytes.Clone(r.Body), nil
	b.requests = append(b.requests, kept)
	released := false
	d := &request.Decision{Endpoints: b.endpoints, AnswerHeaders: b.answer, WantBody: b.wantBody, Tries: b.tries, RetryRefusal: b.refusals}
	if r.ModelSpan[1] > 0 {
		d.ModelTarget = b.rename
	}
	d.Priority, d.Prioritised = b.priority, b.priority != 0
	d.Observe = func(e request.Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, e)
	}
	d.Release = func(o request.Outcome) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if released {
			b.twice++
		}
		released = true
		b.inFlight--
		b.outcomes = append(b.outcomes, o)
	}
	return d, nil
}

func (b *book) set(change func(*book)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

// settle waits until no request is in flight.
func (b *book) settle(t *testing.T) {
	t.Helper()
	testkit.Await(t, "in-flight book back to zero", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.inFlight == 0
	})
	b.set(func(b *book) {
		if b.twice > 0 {
			t.Errorf("%d requests were released more than once", b.twice)
		}
	})
}

// engine answers like an inference engine: with a stream of events, or with one object, whose size
// is in the request. The answer contains the hash of the received request body.
func engine(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("upgrade") != "" {
		echo(w)
		return
	}
	if r.Header.Get("x-echo") != "" {
		for name, values := range r.Header {
			w.Header().Set("seen-"+name, values[0])
		}
		w.Header().Set("x-port", r.Context().Value(http.LocalAddrContextKey).(net.Addr).String())
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away
	}
	w.Header().Set("x-body-sha", digest(body))
	w.Header().Set("x-body-length", r.Header.Get("content-length"))
	n, _ := strconv.Atoi(r.Header.Get("x-answer"))
	if form := r.Header.Get("x-model"); form != "" {
		answerModel(w, body, form)
		return
	}
	if r.Header.Get("x-stream") == "" {
		w.Header().Set("content-type", "application/json")
		_, _ = w.Write(objectAnswer(n))
		return
	}
	w.Header().Set("content-type", "text/event-stream")
	pace, _ := time.ParseDuration(r.Header.Get("x-pace"))
	for event := range strings.SplitAfterSeq(string(eventAnswer(n)), "\n\n") {
		if _, err := io.WriteString(w, event); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		if pace > 0 {
			time.Sleep(pace)
		}
	}
}

func digest(p []byte) string {
	sum := sha256.Sum256(p)
	return hex.EncodeToString(sum[:8])
}

// objectAnswer is a completion of about n bytes.
func objectAnswer(n int) []byte {
	return slices.Concat([]byte(`{"object":"chat.completion","choices":[{"message":{"content":"`), bytes.Repeat([]byte("word "), n/5),
		fmt.Appendf(nil, `"}}],"usage":{"prompt_tokens":%d,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":16}}}`, n))
}

// eventAnswer is a stream of n events with text, and the events before and after.
func eventAnswer(n int) []byte {
	var out bytes.Buffer
	out.WriteString("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n")
	for i := range n {
		fmt.Fprintf(&out, "data: {\"choices\":[{\"delta\":{\"content\":\"token %d\"}}],\"usage\":null}\n\n", i)
	}
	fmt.Fprintf(&out, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":%d,"+
		"\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\ndata: [DONE]\n\n", n)
	return out.Bytes()
}

// requestBody is a JSON body of about n bytes.
func requestBody(n int, model string) []byte {
	return slices.Concat([]byte(`{"model": "`+model+`","messages":[{"role":"user","content":"`),
		bytes.Repeat([]byte("prompt "), n/7), []byte(`"}],"temperature":0.5}`))
}

// rig is clients → Envoy → engine, with a picker at Envoy's side.
type rig struct {
	t      *testing.T
	book   *book
	picker *extproc.Server
	ready  *listen.Readiness // of picker
	envoy  *testkit.Envoy
	engine *httptest.Server
	asked  atomic.Bool // the engine got a request
	client *http.Client
}

// rigOptions change the parts that newRig starts. If params have no MessageTimeout, Envoy waits
// long.
type rigOptions struct {
	params  envoyconf.Params
	options extproc.Options
	tls     listen.TLS
	linger  time.Duration
	bounds  *budget.Listeners
}

func newRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	r := &rig{t: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	r.startEngine()
	address := strings.TrimPrefix(r.engine.URL, "http://")
	r.book = &book{endpoints: []string{address}}
	r.picker, r.ready = openPicker(t, r.book, o)
	p := o.params
	p.ExtProc = append(p.ExtProc, r.picker.Addr().String())
	p.Endpoints = append(p.Endpoints, address)
	p.Plaintext = o.tls.Plaintext
	r.startEnvoy(p)
	return r
}

func (r *rig) startEngine() { r.serve(http.HandlerFunc(engine)) }

func (r *rig) serve(engine http.Handler) {
	r.engine = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		r.asked.Store(true)
		engine.ServeHTTP(w, hr)
	}))
	r.t.Cleanup(r.engine.Close)
}

func (r *rig) startEnvoy(p envoyconf.Params) {
	r.t.Helper()
	p.Listen, p.Admin = "127.0.0.1:0", "127.0.0.1:0"
	if p.MessageTimeout == 0 {
		p.MessageTimeout, p.NetworkTimeout = time.Minute, testkit.NetworkTimeout
	}
	config, err := envoyconf.Render(p)
	if err != nil {
		r.t.Fatal(err)
	}
	r.envoy = testkit.StartEnvoy(r.t, config)
}

func openPicker(t *testing.T, b *book, o rigOptions) (*extproc.Server, *listen.Readiness) {
	t.Helper()
	o.options.Chooser, o.options.Parse, o.options.ParsePrefix = b, request.Parse, request.ParsePrefix
	p, err := extproc.New(o.options)
	if err != nil {
		t.Fatal(err)
	}
	ready := listen.NewReadiness()
	s, err := extproc.Open(p, extproc.Listen{Address: "127.0.0.1:0", TLS: o.tls, Readiness: ready, Linger: o.linger, Listeners: o.bounds})
	if err != nil {
		t.Fatal(err)
	}
	ready.Set(true)
	t.Cleanup(func() { stopPicker(t, s) })
	return s, ready
}

func stopPicker(t *testing.T, s *extproc.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// call is one request and its expected answer.
type call struct {
	size    int // request body, 0 for a GET
	stream  bool
	answer  int
	model   string
	header  map[string]string
	reader  func([]byte) io.Reader // how the body is sent; nil sends it with its length
	trailer bool                   // the request ends with trailers
}

// do sends a request and returns the answer and its body.
func (r *rig) do(ctx context.Context, c call) (*http.Response, []byte, error) {
	method, path := http.MethodPost, "/v1/chat/completions"
	var body io.Reader
	if c.size > 0 {
		raw := requestBody(c.size, c.model)
		body = bytes.NewReader(raw)
		if c.reader != nil {
			body = c.reader(raw)
		}
	} else {
		method, path = http.MethodGet, "/v1/models?full=1"
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+r.envoy.Addr("inference")+path, body)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("x-answer", strconv.Itoa(c.answer))
	if c.stream {
		req.Header.Set("x-stream", "1")
	}
	if c.trailer {
		req.Trailer, req.ContentLength = http.Header{"X-Checksum": {"1"}}, -1
	}
	for k, v := range c.header {
		req.Header.Set(k, v)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return resp, got, err
}

// check sends a request and compares the answer, and the request that the engine received, byte for
// byte.
func (r *rig) check(c call) {
	r.t.Helper()
	resp, got, err := r.do(context.Background(), c)
	if err != nil {
		r.t.Errorf("%+v: %v", c, err)
		return
	}
	want, sent := objectAnswer(c.answer), []byte(nil)
	if c.stream {
		want = eventAnswer(c.answer)
	}
	if c.size > 0 {
		model := c.model
		if r.book.rename != "" {
			model = r.book.rename
		}
		sent = requestBody(c.size, model)
	}
	if resp.StatusCode != http.StatusOK || !bytes.Equal(got, want) {
		r.t.Errorf("%+v: status %d, %d bytes, want 200 and %d; got %.200q", c, resp.StatusCode, len(got), len(want), got)
	}
	if sha := resp.Header.Get("x-body-sha"); sha != digest(sent) {
		r.t.Errorf("%+v: the engine saw another body (%s bytes declared, %d sent)", c, resp.Header.Get("x-body-length"), len(sent))
	}
}

// clean asserts that Envoy counted no fault of the picker.
func (r *rig) clean() {
	r.t.Helper()
	for name, n := range r.envoy.Stats(r.t, "ext_proc.picker.") {
		for _, bad := range faultStats {
			if strings.HasSuffix(name, "."+bad) && n != 0 {
				r.t.Errorf("envoy: %s = %d", name, n)
			}
		}
	}
	if log := r.envoy.Log(); strings.Contains(log, "[error]") || strings.Contains(log, "[critical]") {
		r.t.Errorf("envoy log:\n%s", log)
	}
}

// faultStats are the counters of the ext_proc filter that stay at zero when
// both sides keep to the protocol.
var faultStats = []string{"spurious_msgs_received", "streams_failed", "failure_mode_allowed",
	"message_timeouts", "rejected_header_mutations", "server_half_closed", "http_not_ok_resp_received",
	"immediate_responses_sent", "override_message_timeout_ignored", "clear_route_cache_upstream_ignored"}
