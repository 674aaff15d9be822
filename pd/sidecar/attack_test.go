package sidecar

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// legsOf is a prefill engine (10.…) with one answer, and a decode engine that gives its answers in
// turn and keeps the received requests.
type legsOf struct {
	prefill string
	decode  []*http.Response
	bodies  []string
}

// RoundTrip implements http.RoundTripper.
func (l *legsOf) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	if strings.HasPrefix(r.URL.Host, "10.") {
		return said(l.prefill, "application/json"), nil
	}
	if l.bodies = append(l.bodies, string(body)); len(l.bodies) > len(l.decode) {
		return nil, fmt.Errorf("leg %d is one too many", len(l.bodies))
	}
	return l.decode[len(l.bodies)-1], nil
}

func said(body, kind string) *http.Response {
	h := http.Header{}
	if kind != "" {
		h.Set("Content-Type", kind)
	}
	return &http.Response{StatusCode: 200, Header: h, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body))}
}

// asked has a proxy with some options serve a chat that it must split.
func asked(t *testing.T, o Options, body string) *httptest.ResponseRecorder {
	t.Helper()
	o.Engine = "http://127.0.0.1:8200"
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
	r.Header.Set(headerPrefiller, "10.0.0.1:8000")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// TestInvalidKVTransfers: KV transfer fields that would crash or block a decode engine do not reach
// it.
func TestInvalidKVTransfers(t *testing.T) {
	for object, passes := range map[string]bool{
		`{"do_remote_prefill":true,"remote_block_ids":[[1]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`:       true,
		`{"do_remote_prefill":true,"remote_block_ids":[1,2],"remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`:                               true, // of older engines
		`{"do_remote_prefill":true,"transfer_mode":"push","remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`:         true,
		`{"do_remote_prefill":true,"remote_block_ids":[[1]],"transfer_id":"tx1"}`:                                                                              true,
		`{"remote_block_ids":[[9007199254740993]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600,"x":1e999999}`:    true, // as it came
		`{"do_remote_prefill":true,"remote_block_ids":null,"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`:        false,
		`{"do_remote_prefill":true,"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`:                                false,
		`{"do_remote_prefill":true,"remote_block_ids":[],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`:          false, // ends vLLM 0.32
		`{"do_remote_prefill":true,"remote_block_ids":[[]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`:        false, // the same, if decode lacks blocks
		`{"do_remote_prefill":true,"remote_block_ids":[[1],[2,3]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`: true,
		`{"do_remote_prefill":true,"remote_block_ids":[[1],2],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`:     false,
		`{"do_remote_prefill":true,"remote_block_ids":[1,[2]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`:     false,
		`{"do_remote_prefill":true,"remote_block_ids":["a"],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`:       false,
		`{"do_remote_prefill":true,"remote_block_ids":[["a"]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`:     false,
		`{"do_remote_prefill":true,"remote_block_ids":[[-1]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`:      false,
		`{"do_remote_prefill":true,"remote_block_ids":[[null]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`:    false,
		`{"do_remote_prefill":true,"remote_block_ids":{"a":1},"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`:     false,
		`{"do_remote_prefill":true,"remote_block_ids":[[1]],"remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`:                               false,
		`{"do_remote_prefill":true,"remote_block_ids":[[1]],"remote_request_id":null,"remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}`:      false,
		`{"remote_block_ids":[[1]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600,"remote_block_ids":null}`:        false, // engines take the last
		`[1]`: false, `"x"`: false, `7`: false,
	} {
		l := &legsOf{prefill: `{"kv_transfer_params":` + object + `}`, decode: []*http.Response{said(`{"choices":[]}`, "application/json")}}
		w := asked(t, Options{Transport: l}, `{"messages":[]}`)
		if got := strings.Contains(strings.Join(l.bodies, ""), object); w.Code != 200 || got != passes || len(l.bodies) != 1 {
			t.Errorf("%s: %d, decode got %q", object, w.Code, l.bodies)
		}
	}
}

const soundPrefill = `{"kv_transfer_params":{"remote_block_ids":[[1]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}}`

// TestNothingIsNoAnswer: a 200 with an empty body or truncated JSON is a failure. With a KV transfer
// the request is repeated once; otherwise the gateway gets an error.
func TestNothingIsNoAnswer(t *testing.T) {
	const whole = `{"choices":[{"message":{"content":"x"}}]}`
	for name, bad := range map[string]func() *http.Response{
		"nothing": func() *http.Response { return said("", "application/json") }, "nothing of no type": func() *http.Response { return said("", "") },
		"no event": func() *http.Response { return said("", "text/event-stream") }, "JSON without an end": func() *http.Response { return said(whole[:20], "application/json") },
		"two answers": func() *http.Response { return said(whole+whole, "application/json") },
	} {
		l := &legsOf{prefill: soundPrefill, decode: []*http.Response{bad(), said(whole, "application/json")}}
		if w := asked(t, Options{Transport: l}, `{"messages":[]}`); w.Code != 200 || w.Body.String() != whole {
			t.Errorf("%s, then an answer: %d %s", name, w.Code, w.Body)
		}
		l = &legsOf{prefill: soundPrefill, decode: []*http.Response{bad(), bad()}}
		if w := asked(t, Options{Transport: l}, `{"messages":[]}`); w.Code != 503 {
			t.Errorf("%s, twice: %d %s", name, w.Code, w.Body)
		}
	}
}

// TestEventsAnyhow: events with comments, several lines of data, any line ends and in any
// pieces arrive whole, without KV transfers and with the prefill leg's usage.
func TestEventsAnyhow(t *testing.T) {
	const usage = `"usage":{"prompt_tokens":9,` + "\ndata: " + `"prompt_tokens_details":{"cached_tokens":8}},"kv_transfer_params":{"remote_host":"10.9.9.9"}`
	in := ": ping\n\nretry: 5\n" + textEvent + "id: 7\r\ndata: {\"choices\":[],\r\ndata: \"x\":1}\r\n\r\n" +
		"event: e\ndata:{\"choices\":[]," + usage + "}\nid: 8\n\n" + ": bye\n\n" + doneEvent
	want := ": ping\n\nretry: 5\n" + textEvent + "id: 7\r\ndata: {\"choices\":[],\r\ndata: \"x\":1}\r\n\r\n" +
		"event: e\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":0}}}\nid: 8\n\n" + ": bye\n\n" + doneEvent
	for i := range len(in) {
		text, aborted, _ := streamed(t, io.MultiReader(strings.NewReader(in[:i]), strings.NewReader(in[i:])))
		if text != want || aborted {
			t.Fatalf("cut at %d, aborted %v:\n%q\n%q", i, aborted, text, want)
		}
	}
	fault := "data: {\"error\":\ndata: {\"code\":500}}\n\n"
	if text, _, n := streamed(t, strings.NewReader(fault+doneEvent), strings.NewReader(textEvent+doneEvent)); text != textEvent+doneEvent || n != 2 {
		t.Errorf("an error of two lines: %q after %d legs", text, n)
	}
}

// talks is an engine that calls a function for each request on a connection; the connection closes
// if it returns false.
func talks(t *testing.T, answer func(nth int, c net.Conn, r *http.Request) bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var n atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					if !answer(int(n.Add(1)), c, r) {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func reply(c net.Conn, body string) bool {
	_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	return err == nil
}

// TestIdleConnectionsThatClose: engines close connections that have been idle for some seconds,
// sometimes just before the next request arrives. Clients see no error, and no prefill engine is
// blamed.
func TestIdleConnectionsThatClose(t *testing.T) {
	const whole = `{"choices":[{"message":{"content":"x"}}]}`
	every := func(body string) func(int, net.Conn, *http.Request) bool {
		return func(nth int, c net.Conn, _ *http.Request) bool { return nth%3 != 2 && reply(c, body) } // the 2nd, 5th, … finds it closed
	}
	for _, split := range []bool{false, true} {
		prefill, engine := talks(t, every(soundPrefill)), talks(t, every(whole))
		s, err := New(Options{Engine: "http://" + engine, Transport: NewTransport(1)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 12 {
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[]}`))
			if split {
				r.Header.Set(headerPrefiller, prefill)
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != 200 || w.Body.String() != whole || w.Header().Get("X-Grapevine-Prefill-Faults") != "" {
				t.Fatalf("split %v, request %d: %d %s %v", split, i, w.Code, w.Body, w.Header())
			}
		}
	}
}

// TestStreamsWithoutLength: if a stream ends only with its connection, a truncated one does not
// count as complete.
func TestStreamsWithoutLength(t *testing.T) {
	for text, whole := range map[string]bool{textEvent + doneEvent: true, textEvent: false, textEvent + textEvent[:30]: false} {
		engine := talks(t, func(_ int, c net.Conn, _ *http.Request) bool {
			_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"+text)
			return false
		})
		s, err := New(Options{Engine: "http://" + engine})
		if err != nil {
			t.Fatal(err)
		}
		proxy := httptest.NewServer(s)
		t.Cleanup(proxy.Close)
		resp, err := http.Post(proxy.URL+"/v1/chat/completions", "application/json", strings.NewReader(`{"messages":[],"stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(got) != text || (err == nil) != whole {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// TestRawRequests: requests whose framing contradicts itself, with trailers, headers in any
// case and from IPv6 engines are one request to the engine, or refused.
func TestRawRequests(t *testing.T) {
	var requests atomic.Int64
	var prefills atomic.Int64
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		requests.Add(1)
		if strings.Contains(string(text), "kv_transfer_params\":1") || r.Header.Get("X-Override-Rid") != "" || len(r.Trailer) > 0 {
			t.Errorf("the engine got %q, %v, %v", text, r.Header, r.Trailer)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[]}`)
	}))
	defer engine.Close()
	six, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatalf("this test wants the IPv6 loopback address: %v", err)
	}
	prefill := &httptest.Server{Listener: six, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		prefills.Add(1)
		_, _ = io.WriteString(w, soundPrefill)
	})}}
	prefill.Start()
	defer prefill.Close()
	s, err := New(Options{Engine: engine.URL, KVTransfer: kvtransfer.Policy{Action: kvtransfer.Strip}, Targets: Listed{six.Addr().String(): endpoint.RolePrefill}})
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(s)
	defer proxy.Close()
	const body, inner = `{"messages":[],"kv_transfer_params":1}`, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\nX-Override-Rid: 1\r\n\r\n", len(body), body)
	for name, c := range map[string]struct {
		headers, body string
		want          string // of the status line
		legs, first   int64
	}{
		"plain":                      {fmt.Sprintf("Content-Length: %d", len(body)), body, "200", 1, 0},
		"chunks and trailers":        {"Transfer-Encoding: chunked\r\nTrailer: X-Override-Rid", chunked, "200", 1, 0},
		"both lengths":               {"Content-Length: 4\r\nTransfer-Encoding: chunked", chunked, "", 1, 0},
		"two lengths":                {"Content-Length: 4\r\nContent-Length: 38", body, "400", 0, 0},
		"another encoding":           {"Transfer-Encoding: gzip, chunked", chunked, "501", 0, 0},
		"a hidden request":           {"Content-Length: 2\r\nTransfer-Encoding: identity", "{}" + inner, "", 0, 0},
		"mixed case, IPv6":           {fmt.Sprintf("X-PREFILLER-host-Port: %s\r\nx-OVERRIDE-rid: 7\r\nContent-Length: %d", six.Addr(), len(body)), body, "200", 1, 1},
		"another port of that host":  {fmt.Sprintf("x-prefiller-host-port: [::1]:1\r\nContent-Length: %d", len(body)), body, "200", 1, 0},
		"named twice, one forbidden": {fmt.Sprintf("x-prefiller-host-port: %s\r\nX-Prefiller-Host-Port: [::1]:1\r\nContent-Length: %d", six.Addr(), len(body)), body, "200", 1, 1},
	} {
		requests.Store(0)
		prefills.Store(0)
		conn, err := net.Dial("tcp", proxy.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+c.headers+"\r\n\r\n"+c.body)
		line, _ := bufio.NewReader(conn).ReadString('\n')
		conn.Close()
		if c.want != "" && !strings.Contains(line, " "+c.want+" ") || requests.Load() > c.legs || prefills.Load() != c.first {
			t.Errorf("%s: %q, %d requests at the engine, %d prefills", name, line, requests.Load(), prefills.Load())
		}
	}
}

// TestHalfClosed: a client that closes its side has left, and its legs are cancelled.
func TestHalfClosed(t *testing.T) {
	prefill := prefiller(t, says(200, soundPrefill))
	at, left := make(chan bool), make(chan bool)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		at <- true
		<-r.Context().Done()
		left <- true
	}))
	defer engine.Close()
	s, err := New(Options{Engine: engine.URL})
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(s)
	defer proxy.Close()
	conn, err := net.Dial("tcp", proxy.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n%s: %s\r\nContent-Length: 15\r\n\r\n{\"messages\":[]}", headerPrefiller, prefill)
	<-at
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	<-left // until decode ends
}

// gated is a stream that sends one event, waits, and ends.
type gated struct {
	parts []string
	gate  <-chan struct{}
	here  func()
}

// Read implements io.Reader.
func (g *gated) Read(p []byte) (int, error) {
	if len(g.parts) == 0 {
		return 0, io.EOF
	}
	if len(g.parts) == 1 {
		g.here()
		<-g.gate
	}
	n := copy(p, g.parts[0])
	g.parts = g.parts[1:]
	return n, nil
}

// many is a pair of engines that answers each prompt with the prompt, all at the same time.
type many struct {
	gate chan struct{}
	here sync.WaitGroup
}

// RoundTrip implements http.RoundTripper.
func (m *many) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet { // a health check of a slow run
		return said("", ""), nil
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(r.URL.Host, "10.") {
		return said(soundPrefill, "application/json"), nil
	}
	event := `data: {"choices":[{"text":` + string(kvtransfer.Find(text, "prompt")) + `}]}` + "\n\n"
	body := &gated{parts: []string{event, doneEvent}, gate: m.gate, here: m.here.Done}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, ContentLength: -1, Body: io.NopCloser(body)}, nil
}

// TestManyStreams has 10,000 streams open at once: each client gets its own answer, each stream
// uses little memory, and all memory is released.
func TestManyStreams(t *testing.T) {
	const streams = 10_000
	m := &many{gate: make(chan struct{})}
	m.here.Add(streams)
	s, err := New(Options{Engine: "http://127.0.0.1:8200", Transport: m})
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	var start, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&start)
	var wg sync.WaitGroup
	var wrong atomic.Int64
	for i := range streams {
		wg.Go(func() {
			r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(fmt.Sprintf(`{"prompt":"%d","stream":true}`, i)))
			r.Header.Set(headerPrefiller, "10.0.0.1:8000")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if want := fmt.Sprintf(`data: {"choices":[{"text":"%d"}]}`, i) + "\n\n" + doneEvent; w.Body.String() != want {
				wrong.Add(1)
			}
		})
	}
	m.here.Wait()
	runtime.GC()
	runtime.ReadMemStats(&during)
	close(m.gate)
	wg.Wait()
	if n := wrong.Load(); n > 0 {
		t.Errorf("%d clients got another answer", n)
	}
	if each := (int64(during.HeapAlloc) - int64(start.HeapAlloc)) / streams; each > 32<<10 { // client and engine too
		t.Errorf("%d bytes for each open stream", each)
	}
	testkit.Await(t, "the goroutines of all streams have ended", func() bool { return runtime.NumGoroutine() <= before+2 })
}

// TestTRTLLM: if the context leg finishes the answer, the client gets it in the requested form.
// Without a KV transfer the generation engine serves the whole request. Fields that engines exchange
// do not reach the client.
func TestTRTLLM(t *testing.T) {
	const params = `"disaggregated_params":{"ctx_request_id":5,"encoded_opaque_state":"s"}`
	context := func(reason, more string) string {
		return `{"id":"a","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":` + reason + more +
			`}],"usage":{"prompt_tokens":3},"prompt_token_ids":[1,2]}`
	}
	const whole = `{"choices":[{"index":0,"message":{"content":"y"},` + params + `}]}`
	f := func(name, prefill, body, want string, decode ...string) {
		t.Helper()
		l := &legsOf{prefill: prefill, decode: []*http.Response{said(whole, "application/json")}}
		w := asked(t, Options{Transport: l, Connector: TRTLLM, Random: func() uint64 { return 14 << 50 }}, body)
		if w.Code != 200 || w.Body.String() != want || len(l.bodies) != len(decode) || len(decode) > 0 && l.bodies[0] != decode[0] {
			t.Errorf("%s: %d %s, decode got %q", name, w.Code, w.Body, l.bodies)
		}
	}
	const clean = `{"choices":[{"index":0,"message":{"content":"y"}}]}`
	f("two legs", context(`"length"`, ","+params), `{"messages":[]}`, clean,
		`{"messages":[],"disaggregated_params":{"ctx_request_id":5,"encoded_opaque_state":"s","request_type":"generation_only","schedule_style":0,"conversation_id":null,"ctx_usage":{"prompt_tokens":3}},"prompt_token_ids":[1,2]}`)
	f("nothing handed over", context(`"length"`, ""), `{"messages":[]}`, clean, `{"messages":[]}`)
	f("null", context(`"length"`, `,"disaggregated_params":null`), `{"messages":[]}`, clean, `{"messages":[]}`)
	f("not said how it ended", context(`null`, ","+params), `{"messages":[]}`, clean, `{"messages":[]}`)
	f("ended", context(`"stop"`, ","+params), `{"messages":[]}`,
		`{"id":"a","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}`)
	f("ended, to be streamed", context(`"stop"`, ","+params), `{"messages":[],"stream":true,"stream_options":{"include_usage":true}}`,
		`data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","delta":{"role":"assistant","content":"x"}}]}`+"\n\n"+
			`data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":3}}`+"\n\n"+doneEvent)
}

// TestSlowPrefill: a prefill engine that sends its answer byte by byte is cut off at the time
// limit.
func TestSlowPrefill(t *testing.T) {
	slow := prefiller(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ")
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	engine := httptest.NewServer(says(200, `{"choices":[]}`))
	defer engine.Close()
	s, err := New(Options{Engine: engine.URL, Prefill: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/v1/completions", strings.NewReader(`{"prompt":"x"}`))
	r.Header.Set(headerPrefiller, slow)
	w := httptest.NewRecorder()
	if s.ServeHTTP(w, r); w.Code != 200 || w.Header().Get("X-Grapevine-Prefill-Faults") != "0=timeout" {
		t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
	}
}
