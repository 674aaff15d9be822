package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// exchangeCase is one exchange: the client's request, the expected legs with the engines' answers,
// and the expected response.
type exchangeCase struct {
	ID        string            `json:"id"`
	Connector string            `json:"connector"`
	Picker    map[string]string `json:"headers_of_picker"`
	Random    struct {
		Room       json.Number   `json:"bootstrap_room"`
		Rooms      []json.Number `json:"bootstrap_rooms"`
		UUID, Rank json.RawMessage
		RequestID  string `json:"request_id"`
		Source     string `json:"uuid_source"`
	} `json:"random"`
	Config struct {
		Pod string `json:"decode_pod_ip"`
	} `json:"config"`
	Client struct {
		Method, Path string
		Headers      map[string]string
		Body         json.RawMessage
	} `json:"client"`
	Legs   []*legCase    `json:"legs"`
	Answer *engineAnswer `json:"client_answer"`
}

type legCase struct {
	Leg, To, When, Path string
	Set                 map[string]string `json:"headers_set"`
	Body                json.RawMessage
	Answer              engineAnswer
}

type engineAnswer struct {
	Status    int
	Headers   map[string]string
	Body      json.RawMessage
	SSE       []string `json:"sse"`
	Error     string
	Cancelled bool
}

func (a *engineAnswer) text() []byte {
	if a.SSE != nil {
		return []byte(strings.Join(a.SSE, "\n\n") + "\n\n")
	}
	return a.Body
}

// engines plays the engines of an exchange.
type engines struct {
	t      *testing.T
	mu     sync.Mutex
	legs   []*legCase
	played int
	leave  context.CancelFunc // ends the client once the prefill answer has been read
}

// take returns the next leg to an address.
func (e *engines) take(to string) *legCase {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, l := range e.legs {
		if l != nil && l.To == to {
			e.legs[i] = nil
			e.played++
			return l
		}
	}
	e.t.Errorf("an unexpected leg to %s", to)
	return &legCase{Answer: engineAnswer{Error: "unexpected"}}
}

// RoundTrip implements http.RoundTripper.
func (e *engines) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/health" { // of an engine that failed
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
	}
	if r.URL.Path == "/metrics" { // of a prefill engine, for its block size
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: r}, nil
	}
	l := e.take(r.URL.Host)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if l.Path != "" {
		e.check(l, r, body)
	}
	a := &l.Answer
	switch {
	case strings.Contains(a.Error, "refused"):
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	case a.Error != "" || a.Cancelled:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	resp := &http.Response{StatusCode: a.Status, Header: http.Header{}, ContentLength: -1, Request: r, ProtoMajor: 1, ProtoMinor: 1}
	for k, v := range a.Headers {
		resp.Header.Set(k, v)
	}
	var text io.Reader = bytes.NewReader(a.text())
	if l.Leg == "prefill" && e.leave != nil {
		text = io.MultiReader(text, leaving{e.leave})
	}
	resp.Body = io.NopCloser(text)
	return resp, nil
}

// leaving disconnects the client at the end of a reader.
type leaving struct{ leave context.CancelFunc }

func (l leaving) Read([]byte) (int, error) { l.leave(); return 0, io.EOF }

func (e *engines) check(l *legCase, r *http.Request, body []byte) {
	if r.URL.Path != l.Path {
		e.t.Errorf("%s leg to path %s, want %s", l.Leg, r.URL.Path, l.Path)
	}
	if diff := cmp.Diff(decodeJSON(e.t, l.Body), decodeJSON(e.t, body)); diff != "" {
		e.t.Errorf("%s leg to %s (-want +got):\n%s", l.Leg, l.To, diff)
	}
	for k, v := range l.Set {
		if r.Header.Get(k) != v {
			e.t.Errorf("%s leg: header %s is %q, want %q", l.Leg, k, r.Header.Get(k), v)
		}
	}
	for _, name := range pickersHeaders {
		if r.Header.Get(name) != "" {
			e.t.Errorf("%s leg: header %s reaches the engine", l.Leg, name)
		}
	}
	if l.Leg == "query" || strings.HasPrefix(l.Leg, "encode") { // headers of the client stay here
		if r.Header.Get("Authorization") != "" {
			e.t.Errorf("%s leg: the client's authorization goes to %s", l.Leg, l.To)
		}
		return
	}
	if r.Header.Get("Authorization") == "" || r.Header.Get("X-Request-Id") == "" || r.Header.Get("Traceparent") == "" {
		e.t.Errorf("%s leg: headers of the client are lost: %v", l.Leg, r.Header)
	}
}

func decodeJSON(t *testing.T, text []byte) any {
	t.Helper()
	if len(text) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %.200s", err, text)
	}
	return v
}

// TestExchanges plays known exchanges of engines and existing proxies.
func TestExchanges(t *testing.T) {
	text, err := os.ReadFile("testdata/exchanges.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []*exchangeCase
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.ID, func(t *testing.T) { c.play(t) })
	}
}

func (c *exchangeCase) options(e *engines) Options {
	o := Options{
		Engine: "http://127.0.0.1:8200", Transport: e, Prefill: 300 * time.Millisecond, KVTransfer: kvtransfer.Policy{Action: kvtransfer.Strip},
		Targets: Listed{"10.0.1.5:8000": AnyRole, "10.0.1.6:8000": AnyRole, "10.0.1.7:8000": AnyRole, "10.0.2.7:8000": AnyRole, "10.0.2.8:8000": AnyRole},
	}
	o.NoFallback = c.ID == "security/target-not-allowed" // otherwise the decode engine computes the prompt
	switch {
	case strings.HasPrefix(c.Connector, "sglang"):
		o.Connector, o.RoomHeaders = SGLang, strings.HasSuffix(c.ID, "override-headers")
	case strings.HasPrefix(c.Connector, "trtllm"):
		o.Connector = TRTLLM
	case c.Connector == "shared-storage":
		o.Connector, o.CacheHitThreshold, o.KVTransfer.Allow = Storage, true, []string{"cache_hit_threshold"}
	case strings.Contains(c.Connector, "without cache_hit_threshold"):
		o.Connector = Storage
	case c.Connector == "mooncake":
		o.Connector = Mooncake
	case c.Connector == "offloading":
		o.Connector = Offloading
	case strings.Contains(c.Connector, "write mode"):
		o.Write = &Write{Parallel: strings.Contains(c.Connector, "parallel"), Local: c.Config.Pod}
		o.NoFallback = strings.HasPrefix(c.ID, "fail/")
	case strings.Contains(c.Connector, "p2p pull"):
		o.P2PPull = true
	case strings.HasPrefix(c.Connector, "ec-nixl"):
		o.Encoder = EncodeNIXL
	case c.Connector == "ec-example":
		o.Encoder = EncodeStorage
	}
	names := c.names()
	o.UUID = func() string {
		name := names[0]
		names = names[1:]
		return name
	}
	rooms := c.Random.Rooms
	if c.Random.Room != "" {
		rooms = append(rooms, c.Random.Room)
	}
	if rank := string(c.Random.Rank); rank != "" {
		rooms = append(rooms, json.Number(rank))
	}
	if o.Connector == TRTLLM {
		rooms = append(rooms, json.Number(kvtransfer.Find(c.Legs[0].Body, "disaggregated_params", "disagg_request_id")))
	}
	o.Random = func() uint64 {
		if c.Connector == "mooncake" { // the rank itself
			n, _ := rooms[0].Int64()
			return uint64(n)
		}
		n, err := rooms[0].Int64()
		if err != nil {
			e.t.Error(err)
		}
		rooms = rooms[1:]
		return uint64(n) << 1
	}
	return o
}

// names are the UUIDs that the exchange draws, in order.
func (c *exchangeCase) names() (list []string) {
	var uuid string
	_ = json.Unmarshal(c.Random.UUID, &uuid) // absent in most
	for _, name := range []string{uuid, c.Random.RequestID, c.Random.Source} {
		if name != "" {
			list = append(list, name)
		}
	}
	return list
}

func (c *exchangeCase) play(t *testing.T) {
	e := &engines{t: t, legs: append([]*legCase(nil), c.Legs...)}
	o := c.options(e)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	if strings.Contains(c.ID, "client-left") {
		e.leave = leave
	}
	if strings.Contains(c.ID, "too-old") {
		var times atomic.Int64
		o.Now = func() time.Time { return time.Unix(times.Add(1)*21, 0) }
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(ctx, c.Client.Method, c.Client.Path, bytes.NewReader(c.Client.Body))
	for k, v := range c.Client.Headers {
		r.Header.Set(k, v)
	}
	for k, v := range c.Picker {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if e.played != len(c.Legs) {
		t.Errorf("%d legs of %d", e.played, len(c.Legs))
	}
	if c.Answer == nil || c.Answer.Status == 0 {
		return
	}
	c.compare(t, w)
}

func (c *exchangeCase) compare(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code != c.Answer.Status {
		t.Fatalf("status %d, want %d: %s", w.Code, c.Answer.Status, w.Body)
	}
	for k, v := range c.Answer.Headers {
		if w.Header().Get(k) != v {
			t.Errorf("header %s is %q, want %q", k, w.Header().Get(k), v)
		}
	}
	if c.Answer.SSE == nil {
		if !bytes.Equal(c.Answer.Body, []byte("null")) {
			if diff := cmp.Diff(decodeJSON(t, c.Answer.Body), decodeJSON(t, w.Body.Bytes())); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		}
		return
	}
	got := strings.Split(strings.TrimSuffix(w.Body.String(), "\n\n"), "\n\n")
	if len(got) != len(c.Answer.SSE) {
		t.Fatalf("%d events, want %d:\n%s", len(got), len(c.Answer.SSE), w.Body)
	}
	for i, want := range c.Answer.SSE {
		if got[i] == want {
			continue
		}
		if diff := cmp.Diff(eventJSON(t, want), eventJSON(t, got[i])); diff != "" {
			t.Errorf("event %d (-want +got):\n%s", i, diff)
		}
	}
}

func eventJSON(t *testing.T, event string) any {
	_, data, ok := strings.Cut(event, "data: ")
	if !ok {
		return event
	}
	return []any{strings.Split(event, "\n")[0][:5], decodeJSON(t, []byte(data))}
}

var errCut = errors.New("cut")

// cutAfter breaks off behind its text.
type cutAfter struct{ r io.Reader }

func (c cutAfter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err == io.EOF {
		err = errCut
	}
	return n, err
}

// answering is a decode engine that answers with one body each time.
type answering struct {
	kind  string
	parts []io.Reader
	n     int
}

// RoundTrip implements http.RoundTripper.
func (a *answering) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasPrefix(r.URL.Host, "10.") {
		body := `{"usage":{"prompt_tokens_details":null},"kv_transfer_params":{"remote_block_ids":[[1]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}}`
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
	if a.n == len(a.parts) {
		return nil, fmt.Errorf("leg %d is one too many", a.n)
	}
	a.n++
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {a.kind}}, ContentLength: -1, Body: io.NopCloser(a.parts[a.n-1]), Request: r}, nil
}

func streamed(t *testing.T, legs ...io.Reader) (text string, aborted bool, n int) {
	t.Helper()
	a := &answering{kind: "text/event-stream", parts: legs}
	s, err := New(Options{Engine: "http://127.0.0.1:8200", Transport: a})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[],"stream":true}`))
	r.Header.Set(headerPrefiller, "10.0.0.1:8000")
	w := httptest.NewRecorder()
	func() {
		defer func() { aborted = recover() != nil }()
		s.ServeHTTP(w, r)
	}()
	return w.Body.String(), aborted, a.n
}

const (
	roleEvent = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n"
	textEvent = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":null}]}\n\n"
	doneEvent = "data: [DONE]\n\n"
)

// TestBroken: an answer that breaks off before its first content is repeated. One that breaks off
// later ends the connection. No answer is a mixture of two.
func TestBroken(t *testing.T) {
	whole := roleEvent + textEvent + doneEvent
	cut := func(text string) io.Reader { return cutAfter{strings.NewReader(text)} }
	for _, c := range []struct {
		name    string
		first   string
		want    string
		aborted bool
		legs    int
	}{
		{"at once", "", whole, false, 2},
		{"after the role", roleEvent, whole, false, 2},
		{"after a part of an event", roleEvent + textEvent[:20], whole, false, 2},
		{"after content", roleEvent + textEvent, roleEvent + textEvent, true, 1},
		{"inside later content", roleEvent + textEvent + "data: {\"cho", roleEvent + textEvent + "data: {\"cho", true, 1},
	} {
		text, aborted, legs := streamed(t, cut(c.first), strings.NewReader(whole))
		if text != c.want || aborted != c.aborted || legs != c.legs {
			t.Errorf("%s: %q, aborted %v, %d legs", c.name, text, aborted, legs)
		}
	}
	if text, aborted, _ := streamed(t, cut(roleEvent), cut(roleEvent)); text == "" && !aborted {
		t.Error("two failures are an empty success")
	}
}

// TestSplitAnywhere: events may be split at any byte.
func TestSplitAnywhere(t *testing.T) {
	usage := "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":8}},\"kv_transfer_params\":{\"a\":1}}\r\n\r\n"
	want := roleEvent + textEvent + "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":0}}}\r\n\r\n" + doneEvent
	in := roleEvent + textEvent + usage + doneEvent
	for i := range len(in) {
		text, aborted, _ := streamed(t, io.MultiReader(strings.NewReader(in[:i]), strings.NewReader(in[i:])))
		if text != want || aborted {
			t.Fatalf("cut at %d: %q", i, text)
		}
	}
}
