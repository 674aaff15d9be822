package scrape

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// rawServer answers the n-th request of each connection as the test says.
func rawServer(t *testing.T, answer func(nc net.Conn, connection, request int) (more bool)) (address string, connections *atomic.Int64) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	connections = new(atomic.Int64)
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			c := int(connections.Add(1))
			go func() {
				defer nc.Close()
				in := bufio.NewReader(nc)
				for n := 1; ; n++ {
					r, err := http.ReadRequest(in)
					if err != nil || r.URL.Path != "/metrics" || !answer(nc, c, n) {
						return
					}
				}
			}()
		}
	}()
	return ln.Addr().String(), connections
}

func ask(ctx context.Context, t *testing.T, tr *transport, address string) (string, error) {
	t.Helper()
	r, err := newRequest("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func TestTransport(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	say := func(texts ...string) func(net.Conn, int, int) bool {
		return func(nc net.Conn, _, _ int) bool {
			for _, s := range texts {
				_, _ = io.WriteString(nc, s)
			}
			return true
		}
	}
	for _, c := range []struct {
		name        string
		answer      func(nc net.Conn, connection, request int) bool
		body        string // "": an error
		connections int    // for three requests
	}{
		{"content length", say(ok), "ok", 1},
		{"chunks", say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\no\r\n", "1\r\nk\r\n0\r\n\r\n"), "ok", 1},
		{"informational first", say("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", ok), "ok", 1},
		{"to the end of the connection", func(nc net.Conn, _, _ int) bool {
			_, _ = io.WriteString(nc, "HTTP/1.0 200 OK\r\n\r\nok")
			return false
		}, "ok", 3},
		{"asked to close", say("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"), "ok", 3},
		{"data after the body", say(ok + "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"), "ok", 3},
		{"closed after the answer", func(nc net.Conn, _, _ int) bool { _, _ = io.WriteString(nc, ok); return false }, "ok", 3},
		{"closed without an answer", func(net.Conn, int, int) bool { return false }, "", 3},
		{"a kept connection breaks in the header", func(nc net.Conn, _, n int) bool {
			if n > 1 {
				_, _ = io.WriteString(nc, "HTTP/1.1 200")
				return false
			}
			_, _ = io.WriteString(nc, ok)
			return true
		}, "once", 2},
		{"no HTTP", say("SSH-2.0-x\r\n"), "", 3},
		{"endless header", func(nc net.Conn, _, _ int) bool {
			_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\n"+strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 100))
			return false
		}, "", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			address, connections := rawServer(t, c.answer)
			tr := newTransport(&Options{Timeout: testkit.HangTimeout})
			defer tr.Close()
			for n := range 3 {
				body, err := ask(t.Context(), t, tr, address)
				switch {
				case c.body == "once":
					if good := n != 1; good != (err == nil) {
						t.Errorf("request %d: %q, %v", n+1, body, err)
					}
				case c.body == "" && err == nil:
					t.Errorf("request %d: %q, want an error", n+1, body)
				case c.body != "" && (err != nil || body != c.body):
					t.Errorf("request %d: %q, %v, want %q", n+1, body, err, c.body)
				}
			}
			if got := int(connections.Load()); got != c.connections {
				t.Errorf("%d connections, want %d", got, c.connections)
			}
		})
	}
}

// TestTransportEnds: the end of the request's context ends a request in each of its phases, and its
// connection is not used again.
func TestTransportEnds(t *testing.T) {
	for _, before := range []string{"", "HTTP/1.1 2", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok"} {
		hold := make(chan struct{})
		address, connections := rawServer(t, func(nc net.Conn, c, _ int) bool {
			if c > 1 {
				_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				return true
			}
			_, _ = io.WriteString(nc, before)
			hold <- struct{}{}
			return true
		})
		tr := newTransport(&Options{Timeout: testkit.HangTimeout})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-hold; cancel() }()
		if _, err := ask(ctx, t, tr, address); !errors.Is(err, context.Canceled) {
			t.Errorf("after %q: %v, want %v", before, err, context.Canceled)
		}
		ctx, cancel = context.WithTimeout(t.Context(), testkit.HangTimeout)
		if body, err := ask(ctx, t, tr, address); err != nil || body != "ok" || connections.Load() != 2 {
			t.Errorf("next request: %q, %v on connection %d, want ok on the second", body, err, connections.Load())
		}
		cancel()
		tr.Close()
	}
	address, _ := rawServer(t, func(nc net.Conn, _, _ int) bool { _, _ = io.Copy(io.Discard, nc); return false })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := ask(ctx, t, newTransport(&Options{}), address); causeOf(err) != causeTimeout {
		t.Errorf("an engine that hangs: %v is %s, want %s", err, causeOf(err), causeTimeout)
	}
}

// TestTransportIsSmall: an idle connection holds no goroutine and no buffer.
func TestTransportIsSmall(t *testing.T) {
	page := bytes.Repeat([]byte("x"), 100_000)
	head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(page))
	address, _ := rawServer(t, func(nc net.Conn, _, _ int) bool {
		_, _ = io.WriteString(nc, head)
		_, _ = nc.Write(page)
		return true
	})
	before := runtime.NumGoroutine()
	list := make([]*transport, 50)
	for i := range list {
		list[i] = newTransport(&Options{Timeout: testkit.HangTimeout})
		if body, err := ask(t.Context(), t, list[i], address); err != nil || len(body) != len(page) {
			t.Fatalf("%d bytes, %v", len(body), err)
		}
		if list[i].idle == nil {
			t.Fatal("the connection is not kept")
		}
	}
	if more := runtime.NumGoroutine() - before; more > len(list)+5 { // one of the server for each connection
		t.Errorf("%d goroutines more for %d connections, want those of the server", more, len(list))
	}
	for _, tr := range list {
		tr.Close()
	}
}
