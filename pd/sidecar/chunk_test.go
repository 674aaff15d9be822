package sidecar

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkStreamedChunk sends chunks of a stream one by one over sockets: directly, through a
// relay that does not parse them, and through the proxy. Each chunk is sent when the previous one
// has arrived, so none are combined, and each costs its reads, writes and wake-ups.
//
// The difference to the direct connection is the proxy's cost per token, including its connection
// to the client. The difference to the relay is the cost of the proxy's code. Engine, relay and
// client do not allocate.
func BenchmarkStreamedChunk(b *testing.B) {
	send := make(chan bool)
	chunk := fmt.Appendf(nil, "%x\r\n%s\r\n", len(textEvent), textEvent)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 64<<10)) // one request
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
			for <-send {
				_, _ = c.Write(chunk)
			}
			_, _ = io.WriteString(c, "0\r\n\r\n")
			c.Close()
		}
	}()
	s, err := New(Options{Engine: "http://" + l.Addr().String(), Transport: NewTransport(1)})
	if err != nil {
		b.Fatal(err)
	}
	proxy := httptest.NewServer(s)
	defer proxy.Close()
	bare := relay(b, l.Addr().String())
	for _, way := range []struct{ name, address string }{{"direct", l.Addr().String()}, {"relayed", bare}, {"proxied", strings.TrimPrefix(proxy.URL, "http://")}} {
		b.Run(way.name, func(b *testing.B) {
			c, err := net.Dial("tcp", way.address)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			_, _ = fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 28\r\n\r\n%s", `{"prompt":"x","stream":true}`)
			in := bufio.NewReader(c)
			next := func() {
				send <- true
				for {
					line, err := in.ReadSlice('\n')
					if err != nil {
						b.Fatal(err)
					}
					if bytes.HasPrefix(line, []byte("data:")) {
						return
					}
				}
			}
			next()
			took := make([]time.Duration, 0, b.N)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			cpu := processTime(b)
			b.ResetTimer()
			for range b.N {
				start := time.Now()
				next()
				took = append(took, time.Since(start))
			}
			b.StopTimer()
			n := float64(b.N)
			b.ReportMetric(float64((processTime(b)-cpu).Nanoseconds())/1e3/n, "cpu-µs/chunk")
			runtime.ReadMemStats(&after)
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "mallocs/chunk")
			send <- false
			_, _ = io.Copy(io.Discard, in)
		})
	}
}

// relay passes the bytes of connections on to an address and back, and returns its own.
func relay(b *testing.B, to string) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	pass := func(dst, src net.Conn) {
		defer dst.Close()
		for buf := make([]byte, 32<<10); ; { // with its own reads, as for a relay that parses them
			n, err := src.Read(buf)
			if _, failed := dst.Write(buf[:n]); err != nil || failed != nil {
				return
			}
		}
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			engine, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			go pass(engine, client)
			go pass(client, engine)
		}
	}()
	return l.Addr().String()
}
