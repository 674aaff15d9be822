package sidecar

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/bodies"
)

const (
	handedOver = `{"prompt":"x","kv_transfer_params":{"do_remote_prefill":true}}`
	handedNone = `{"prompt":"x"}`
)

// seen is an engine that keeps the received requests, and answers.
type seen struct {
	mu  sync.Mutex
	all []string
}

// ServeHTTP implements http.Handler.
func (s *seen) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "" {
		nc, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer nc.Close()
		s.keep("upgrade to " + r.Header.Get("Upgrade"))
		_, _ = io.WriteString(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		return
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		s.keep("broken")
		return
	}
	s.keep(r.Method + " " + r.URL.Path + " " + string(text))
	_, _ = io.WriteString(w, `{"choices":[]}`)
}

func (s *seen) keep(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, what)
}

func (s *seen) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := strings.Join(s.all, ", ")
	s.all = nil
	return out
}

// TestNoOtherWay sends a sidecar, byte by byte, requests that proxies and engines are known to
// parse differently. None brings a KV transfer field, a second request or a tunnel to the engine.
func TestNoOtherWay(t *testing.T) {
	engine := &seen{}
	behind := httptest.NewServer(engine)
	defer behind.Close()
	open := func(webSockets bool) string {
		s, err := New(Options{Engine: behind.URL, KVTransfer: kvtransfer.Policy{Action: kvtransfer.Strip}, WebSockets: webSockets})
		if err != nil {
			t.Fatal(err)
		}
		proxy := httptest.NewServer(s)
		t.Cleanup(proxy.Close)
		return proxy.Listener.Addr().String()
	}
	plain, sockets := open(false), open(true)
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(handedOver), handedOver)
	sized := func(body string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body) }
	const socket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
	for _, c := range []struct {
		name, at, line, rest string
		status               int
		want                 string
	}{
		{"both lengths", plain, "POST /invocations", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked, 200, "POST /invocations " + handedNone},
		{"both lengths, split", plain, "POST /v1/completions", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked, 200, "POST /v1/completions " + handedNone},
		{"a request behind a body", plain, "POST /invocations", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nPOST /generate HTTP/1.1\r\nHost: x\r\n" + sized(handedOver), 200, "POST /invocations "},
		{"two lengths", plain, "POST /invocations", "Content-Length: 5\r\nContent-Length: 62\r\n\r\n" + handedOver, 400, ""},
		{"an unknown coding", plain, "POST /invocations", "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunked, 501, ""},
		{"chunked twice", plain, "POST /invocations", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked, 501, ""},
		{"a space before the colon", plain, "POST /invocations", "Transfer-Encoding : chunked\r\n\r\n" + chunked, 400, ""},
		{"a folded header", plain, "POST /invocations", "X-A: b\r\n Transfer-Encoding: chunked\r\n" + sized(handedOver), 200, "POST /invocations " + handedNone},
		{"an obscured coding", plain, "POST /invocations", "Transfer-Encoding: \x0bchunked\r\n\r\n" + chunked, 400, ""},
		{"an encoding in a second line", plain, "POST /invocations", "Content-Encoding: identity\r\nContent-Encoding: gzip\r\n" + sized("\x1f\x8b"), 400, ""},
		{"an encoding in a second line, split", plain, "POST /v1/completions", "Content-Encoding: \r\nContent-Encoding: gzip\r\n" + sized("\x1f\x8b"), 400, ""},
		{"an encoding in a list", plain, "POST /invocations", "Content-Encoding: identity, br\r\n" + sized("\x1f\x8b"), 400, ""},
		{"identity twice", plain, "POST /invocations", "Content-Encoding: identity\r\nContent-Encoding: Identity\r\n" + sized(handedOver), 200, "POST /invocations " + handedNone},
		{"several content types", plain, "POST /invocations", "Content-Type: multipart/form-data\r\nContent-Type: application/json\r\n" + sized(handedOver), 200, "POST /invocations " + handedNone},
		{"its type between neighbours", plain, "POST /invocations", "Connection: content-type, content-length\r\nContent-Type: text/plain\r\n" + sized(handedOver), 200, "POST /invocations " + handedNone},
		{"a trailer", plain, "POST /invocations", "Transfer-Encoding: chunked\r\nTrailer: X-Prefiller-Host-Port\r\n\r\n" + strings.Replace(chunked, "0\r\n\r\n", "0\r\nX-Prefiller-Host-Port: 10.0.0.1:1\r\n\r\n", 1), 200, "POST /invocations " + handedNone},
		{"an absolute address", plain, "POST http://10.0.0.1/invocations", sized(handedOver), 200, "POST /invocations " + handedNone},
		{"h2c", plain, "POST /invocations", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n" + sized(handedOver), 200, "POST /invocations " + handedNone},
		{"h2c and a WebSocket", sockets, "GET /v1/realtime", "Connection: Upgrade\r\nUpgrade: h2c\r\n" + socket, 200, "GET /v1/realtime "},
		{"a WebSocket", plain, "GET /v1/realtime", socket, 403, ""},
		{"a WebSocket where it is allowed", sockets, "GET /v1/realtime", socket, 101, "upgrade to websocket"},
		{"a WebSocket by POST", sockets, "POST /v1/realtime", socket, 403, ""},
		{"a tunnel", plain, "CONNECT 10.0.0.1:80", "\r\n", 405, ""},
		{"an echo", plain, "TRACE /v1/models", "\r\n", 405, ""},
		{"HTTP/2 without being asked", plain, "PRI *", "\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", 505, ""},
	} {
		nc, err := net.Dial("tcp", c.at)
		if err != nil {
			t.Fatal(err)
		}
		version, end := "1.1", "Connection: close\r\n"
		if strings.HasPrefix(c.line, "PRI") {
			version, end = "2.0", ""
		}
		if strings.Contains(c.rest, "Upgrade: websocket") || c.name == "h2c" {
			end = ""
		}
		if _, err := io.WriteString(nc, c.line+" HTTP/"+version+"\r\nHost: x\r\n"+end+c.rest); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(nc), &http.Request{Method: strings.Fields(c.line)[0]})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if c.status != http.StatusSwitchingProtocols && end != "" {
			_, _ = io.Copy(io.Discard, nc) // to the end of all answers
		}
		if got := engine.take(); resp.StatusCode != c.status || got != c.want {
			t.Errorf("%s: %d, the engine got %q; want %d, %q", c.name, resp.StatusCode, got, c.status, c.want)
		}
		_ = nc.Close()
	}
}

// pipes is a listener of in-process connections, for virtual time.
type pipes chan net.Conn

// Accept implements net.Listener.
func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (p pipes) Close() error { close(p); return nil }

// Addr implements net.Listener.
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// readers is an engine that reads bodies to the end.
type readers struct{}

// RoundTrip implements http.RoundTripper.
func (readers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), ContentLength: 2, Request: r}, nil
}

// TestSlowBodies: a body that arrives too slowly is aborted, whether it is inspected, forwarded or
// split. One that is fast enough is not, and the next request on its connection is served at any
// time.
func TestSlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Engine: "http://127.0.0.1:8200", Transport: readers{}})
		if err != nil {
			t.Fatal(err)
		}
		lis, served := make(pipes), make(chan error, 1)
		server := &http.Server{Handler: s}
		go func() { served <- server.Serve(lis) }()
		// send sends pieces, one per interval each, and returns how long the server read.
		send := func(path, kind, first, piece, last string, pieces int, each time.Duration) (status int, took time.Duration, nc net.Conn) {
			nc, far := net.Pipe()
			lis <- far
			begun := time.Now()
			go func() {
				n := len(first) + pieces*len(piece) + len(last)
				_, _ = fmt.Fprintf(nc, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", path, kind, n, first)
				for range pieces {
					time.Sleep(each)
					if _, err := io.WriteString(nc, piece); err != nil {
						return
					}
				}
				_, _ = io.WriteString(nc, last)
			}()
			resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
			if err != nil {
				return 0, time.Since(begun), nc
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.StatusCode, time.Since(begun), nc
		}
		fast := strings.Repeat("x", bodies.Speed*10)
		for _, c := range []struct{ name, path, kind, first, last string }{
			{"split", "/v1/completions", "application/json", `{"prompt":"`, `"}`},
			{"looked into", "/invocations", "application/json", `{"prompt":"`, `"}`},
			{"passed on", "/v1/audio/transcriptions", "multipart/form-data; boundary=x", "--x\r\n", "--x--\r\n"},
		} {
			status, took, nc := send(c.path, "application/json\r\nContent-Encoding: gzip", "", "x", "", 1000, time.Second)
			if status == 200 || took > bodies.IdleTimeout+time.Second {
				t.Errorf("a byte a second of what is refused unread, %s: %d after %v", c.name, status, took)
			}
			_ = nc.Close()
			status, took, nc = send(c.path, c.kind, c.first, "x", c.last, 1000, time.Second)
			if status == 200 || took < bodies.IdleTimeout || took > bodies.IdleTimeout+time.Second {
				t.Errorf("a byte a second, %s: %d after %v", c.name, status, took)
			}
			_ = nc.Close()
			status, took, nc = send(c.path, c.kind, c.first, fast, c.last, 12, 10*time.Second)
			if status != 200 || took < 2*time.Minute {
				t.Errorf("64 KiB a second, %s: %d after %v", c.name, status, took)
			}
			time.Sleep(10 * time.Minute)
			go func() { _, _ = io.WriteString(nc, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n") }()
			if resp, err := http.ReadResponse(bufio.NewReader(nc), nil); err != nil || resp.StatusCode != 200 {
				t.Errorf("later, %s: %v", c.name, err)
			} else {
				_, _ = io.Copy(io.Discard, resp.Body)
			}
			_ = nc.Close()
		}
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}
