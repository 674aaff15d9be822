package sidecar

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/sse"
)

// utf16 returns a text in an encoding that Python's json module also reads.
func utf16(s string) string {
	var out []byte
	for i := range len(s) {
		out = append(out, s[i], 0)
	}
	return string(out)
}

// TestPassedBodies: KV transfer fields reach the engine by no path, method or encoding, and bodies
// without any arrive unchanged.
func TestPassedBodies(t *testing.T) {
	var got, method string
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { _, _ = io.WriteString(w, "{}") }()
		text, _ := io.ReadAll(r.Body)
		got, method = string(text), r.Method
		if n := r.ContentLength; n >= 0 && n != int64(len(text)) {
			t.Errorf("%d bytes of %d", len(text), n)
		}
	}))
	defer engine.Close()
	s, err := New(Options{Engine: engine.URL, KVTransfer: kvtransfer.Policy{Action: kvtransfer.Strip}, MaxBody: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	const bad, good = `{"prompt":"x","kv_transfer_params":{"do_remote_prefill":true}}`, `{"prompt":"x"}`
	zip := func(text string) string {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		_, _ = z.Write([]byte(text))
		z.Close()
		return out.String()
	}
	long := `{"prompt":"` + strings.Repeat("x", 2000) + `"}`
	for _, c := range []struct {
		method, path, body, kind, encoding string
		status                             int
		want                               string
	}{
		{"POST", "/invocations", bad, "application/json", "", 200, good},
		{"PUT", "/generate", bad, "application/json", "", 200, good},
		{"POST", "/v1/embeddings", " \n" + bad, "", "", 200, good},
		{"POST", "/v1/embeddings", good, "text/plain", "", 200, good},
		{"POST", "/v1/chat%2Fcompletions", `{"messages":[],"kv_transfer_params":{}}`, "application/json", "", 200, `{"messages":[]}`},
		{"POST", "/invocations", `{"kv_transfer_params":1,"kv_transfer_params":2}`, "application/json", "", 400, ""},
		{"POST", "/invocations", `{"prompt":"x"`, "application/json", "", 400, ""},
		{"POST", "/invocations", utf16(bad), "application/json", "", 400, ""},
		{"POST", "/invocations", "\xff\xfe" + utf16(bad), "application/json", "", 400, ""},
		{"POST", "/invocations", "\xef\xbb\xbf" + bad, "application/json", "", 400, ""},
		{"POST", "/v1/completions", "\xef\xbb\xbf" + bad, "application/json", "", 400, ""},
		{"POST", "/invocations", zip(bad), "application/json", "gzip", 200, good},
		{"POST", "/v1/completions", zip(bad), "application/json", "gzip", 200, good},
		{"POST", "/v1/files", zip("[1]"), "application/json", "gzip", 200, "[1]"},
		{"POST", "/invocations", zip("\xff\xfe" + utf16(bad)), "application/json", "gzip", 400, ""},
		{"POST", "/invocations", zip(bad)[:20], "application/json", "gzip", 400, ""},
		{"POST", "/invocations", zip(`{"prompt":"` + strings.Repeat("x", 2000) + `"}`), "application/json", "gzip", 413, ""},
		{"POST", "/v1/completions", bad, "application/json", "snappy", 415, ""},
		{"POST", "/invocations", strings.Repeat(" ", maxSpace+2) + bad, "application/json", "", 400, ""},
		{"POST", "/v1/embeddings", long, "application/json", "", 413, ""},
		{"POST", "/v1/audio/transcriptions", "--x\r\n" + long, "multipart/form-data; boundary=x", "", 200, "--x\r\n" + long},
		{"POST", "/invocations", bad, "multipart/form-data; boundary=x", "", 200, good},
		{"POST", "/v1/audio/transcriptions", long, "multipart/form-data; boundary=x", "", 413, ""},
		{"POST", "/v1/files", "  [1,2]", "application/json", "", 200, "  [1,2]"},
		{"POST", "/v1/files", "  ", "application/json", "", 200, "  "},
		{"POST", "/v1/files", "\x00\x01", "multipart/mixed", "", 400, ""},
		{"GET", "/v1/models", "", "", "", 200, ""},
		{"HEAD", "/v1/models", "", "", "", 200, ""},
		{"GET", "/v1/chat/completions", "", "", "", 200, ""},
		{"DELETE", "/v1/responses/1", "", "", "", 200, ""},
	} {
		got, method = "", ""
		r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
		if c.body == "" {
			r = httptest.NewRequest(c.method, c.path, nil)
		}
		r.Header.Set("Content-Type", c.kind)
		if c.encoding != "" {
			r.Header.Set("Content-Encoding", c.encoding)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != c.status || got != c.want || w.Code == 200 && method != c.method {
			t.Errorf("%s %s %.60q: %d, the engine got %s %.60q", c.method, c.path, c.body, w.Code, method, got)
		}
	}
}

// answers gives one answer to every leg.
type answers struct {
	header http.Header
	body   string
}

// RoundTrip implements http.RoundTripper.
func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if got := r.Header.Get("Accept-Encoding"); got != "identity" {
		return nil, fmt.Errorf("a leg accepts %q", got)
	}
	return &http.Response{StatusCode: 200, Header: a.header.Clone(), ContentLength: -1, Body: io.NopCloser(strings.NewReader(a.body)), Request: r}, nil
}

// TestOddAnswers: an answer that cannot be parsed, or not completely, is an error; the client never
// gets a part.
func TestOddAnswers(t *testing.T) {
	f := func(what string, a answers, status int, want string) {
		t.Helper()
		s, err := New(Options{Engine: "http://127.0.0.1:8200", Transport: a, MaxBody: 1 << 10})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[]}`))
		r.Header.Set("Accept-Encoding", "gzip, br")
		r.Header.Set(headerPrefiller, "10.0.0.1:8000")
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != status || want != "" && w.Body.String() != want {
			t.Errorf("%s: %d, %.80q", what, w.Code, w.Body)
		}
	}
	kind := func(more ...string) http.Header {
		h := http.Header{"Content-Type": {"application/json"}}
		for i := 0; i+1 < len(more); i += 2 {
			h.Set(more[i], more[i+1])
		}
		return h
	}
	f("JSON", answers{kind(), `{"a":1}`}, 200, `{"a":1}`)
	f("compressed", answers{kind("Content-Encoding", "gzip"), "\x1f\x8b\x08"}, 502, "")
	f("a compressed stream", answers{kind("Content-Type", "text/event-stream", "Content-Encoding", "br"), "\x1f\x8b\x08"}, 502, "")
	f("identity", answers{kind("Content-Encoding", "identity"), `{"a":1}`}, 200, `{"a":1}`)
	f("too large", answers{kind(), `{"a":"` + strings.Repeat("x", 1<<10) + `"}`}, 502, "")
	large := `data: {"choices":[{"delta":{"content":"` + strings.Repeat("x", sse.MaxEvent+100) + `"}}],"usage":{}}` + "\n\n"
	f("a huge event", answers{kind("Content-Type", "text/event-stream"), roleEvent + large + doneEvent}, 200, roleEvent+large+doneEvent)
	f("lines that end in CR LF", answers{kind("Content-Type", "Text/Event-Stream; charset=utf-8"), ": hello\r\n\r\n" + textEvent}, 200, ": hello\r\n\r\n"+textEvent)
	f("no event at all", answers{kind("Content-Type", "text/event-stream"), strings.Repeat("x", maxHead*2)}, 200, strings.Repeat("x", maxHead*2))
}

// TestClientLeaves: a client may leave at any point. Its legs are then cancelled, and blocks that
// prefill holds by then are read or released.
func TestClientLeaves(t *testing.T) {
	for _, c := range []struct {
		state   string
		entered string // the leg at which the client leaves
	}{{"prefill", "prefill"}, {"decode's head", "decode"}, {"decode's stream", "stream"}} {
		for _, connector := range []Connector{NIXL, SGLang, Offloading} {
			at, left := make(chan string, 8), make(chan string, 8)
			wait := func(leg string, r *http.Request) {
				at <- leg
				<-r.Context().Done()
				left <- leg
			}
			prefill := prefiller(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if c.entered == "prefill" {
					wait("prefill", r)
					return
				}
				_, _ = io.WriteString(w, `{"kv_transfer_params":{"remote_block_ids":[[1]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}}`)
			})
			engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if c.entered == "stream" {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, textEvent)
					w.(http.Flusher).Flush()
				}
				wait("decode", r)
			}))
			t.Cleanup(engine.Close)
			s, err := New(Options{Engine: engine.URL, Connector: connector, Transport: NewTransport(8)})
			if err != nil {
				t.Fatal(err)
			}
			proxy := httptest.NewServer(s)
			t.Cleanup(proxy.Close)
			ctx, leave := context.WithCancel(t.Context())
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, proxy.URL+"/v1/chat/completions", strings.NewReader(`{"messages":[],"stream":true}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set(headerPrefiller, prefill)
			ended := make(chan error, 1)
			go func() {
				resp, err := http.DefaultClient.Do(r)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				ended <- err
			}()
			legs := 1
			if c.entered == "prefill" && connector != NIXL {
				legs = 2 // both at once
			}
			for range legs {
				<-at
			}
			leave()
			for range legs {
				<-left
			}
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("%s, connector %d: %v", c.state, connector, err)
			}
			testkit.Await(t, "the prefill leg counts as given up, not as a fault", func() bool {
				n := testutil.ToFloat64(s.m.prefills.WithLabelValues("cancelled")) + testutil.ToFloat64(s.m.prefills.WithLabelValues("ok"))
				return n == 1
			})
		}
	}
}

// TestConnectionsAreKept: a leg that failed leaves a connection that the next can use.
func TestConnectionsAreKept(t *testing.T) {
	var dialed connections
	prefill := httptest.NewUnstartedServer(says(500, strings.Repeat("x", 1000)))
	prefill.Config.ConnState = dialed.note
	prefill.Start()
	defer prefill.Close()
	engine := httptest.NewServer(says(200, `{"choices":[]}`))
	defer engine.Close()
	s, err := New(Options{Engine: engine.URL, Transport: NewTransport(8), Prefill: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{"prompt":"x"}`))
		r.Header.Set(headerPrefiller, strings.TrimPrefix(prefill.URL, "http://"))
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if n := dialed.n.Load(); n > 10 { // one, plus a few for slow returns
		t.Errorf("%d connections for 20 legs in a row", n)
	}
}

// TestDrainCloses: while the proxy drains, answers of every kind are complete and ask the client to
// close its connection.
func TestDrainCloses(t *testing.T) {
	engine := httptest.NewServer(says(200, `{"choices":[]}`))
	defer engine.Close()
	s, err := New(Options{Engine: engine.URL})
	if err != nil {
		t.Fatal(err)
	}
	s.Drain()
	for _, path := range []string{"/v1/completions", "/v1/models"} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(`{"prompt":"x"}`)))
		if w.Code != 200 || w.Header().Get("Connection") != "close" || w.Body.String() != `{"choices":[]}` {
			t.Errorf("%s: %d, connection %q, %s", path, w.Code, w.Header().Get("Connection"), w.Body)
		}
	}
}

// connections counts new connections of a server.
type connections struct{ n atomic.Int64 }

func (c *connections) note(_ net.Conn, s http.ConnState) {
	if s == http.StateNew {
		c.n.Add(1)
	}
}

// TestWireHabits: a client that waits for 100 Continue gets it at once, and the engine does not see
// the header. Trailers of the engine arrive after streams, complete answers and forwarded
// responses.
func TestWireHabits(t *testing.T) {
	answer := func(request string) string {
		if strings.Contains(request, "stream") {
			return doneEvent
		}
		return `{"choices":[]}`
	}
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		if strings.Contains(string(text), "stream") {
			w.Header().Set("Content-Type", "text/event-stream")
		} else {
			w.Header().Set("Content-Type", "application/json")
		}
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("X-Expect", r.Header.Get("Expect"))
		_, _ = io.WriteString(w, answer(string(text)))
		w.Header().Set("X-Sum", "42")
	}))
	defer engine.Close()
	s, err := New(Options{Engine: engine.URL})
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(s)
	defer proxy.Close()
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Hour}}
	defer client.CloseIdleConnections()
	for path, body := range map[string]string{
		"/v1/completions": `{"prompt":"x","stream":true}`, "/v1/chat/completions": `{"messages":[]}`, "/v1/embeddings": `{"input":"x"}`,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, proxy.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Expect", "100-continue")
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || string(text) != answer(body) || resp.Trailer.Get("X-Sum") != "42" {
			t.Errorf("%s: %d %q, trailers %v, %v", path, resp.StatusCode, text, resp.Trailer, err)
		}
		if path != "/v1/embeddings" && resp.Header.Get("X-Expect") != "" {
			t.Errorf("%s: the engine is asked for 100 Continue", path)
		}
	}
}

// TestKeptBlocks: a decode engine that keeps blocks for a next turn is reported once, and its
// fields about these blocks do not reach clients.
func TestKeptBlocks(t *testing.T) {
	const kept = `"kv_transfer_params":{"do_remote_decode":true,"remote_host":"10.0.0.9"}`
	for _, body := range []string{`{"choices":[],` + kept + `}`, `data: {"choices":[{"delta":{"content":"x"}}],` + kept + "}\n\n"} {
		kind := "application/json"
		if strings.HasPrefix(body, "data:") {
			kind = "text/event-stream"
		}
		var log bytes.Buffer
		s, err := New(Options{
			Engine: "http://127.0.0.1:8200", Transport: answers{http.Header{"Content-Type": {kind}}, body}, Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[]}`)))
			if w.Code != 200 || strings.Contains(w.Body.String(), "remote_host") || !strings.Contains(w.Body.String(), "choices") {
				t.Errorf("%s: %d %s", kind, w.Code, w.Body)
			}
		}
		if n := strings.Count(log.String(), "bidirectional_kv_xfer"); n != 1 {
			t.Errorf("%s: noticed %d times: %s", kind, n, log.String())
		}
	}
}
