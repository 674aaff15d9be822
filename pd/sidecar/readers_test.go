package sidecar

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/bodies"
)

// unending answers with a stream of one event a second until the request is cancelled, and reports
// that time.
type unending struct{ left chan time.Time }

// RoundTrip implements http.RoundTripper.
func (e unending) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	from, to := io.Pipe()
	go func() {
		for {
			select {
			case <-r.Context().Done():
				e.left <- time.Now()
				_ = to.CloseWithError(r.Context().Err())
				return
			case <-time.After(time.Second):
				if _, err := io.WriteString(to, textEvent); err != nil {
					e.left <- time.Now()
					return
				}
			}
		}
	}()
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: from, ContentLength: -1, Request: r,
	}, nil
}

// TestClientsThatDoNotRead: a client that reads none of its answer for Reader is cut off together
// with its engine. A slow reader is not, for any length of its answer.
func TestClientsThatDoNotRead(t *testing.T) {
	for _, path := range []string{"/v1/completions", "/v1/embeddings"} { // looked into, and passed on
		synctest.Test(t, func(t *testing.T) {
			engine := unending{make(chan time.Time, 2)}
			s, err := New(Options{Engine: "http://127.0.0.1:8200", Transport: engine})
			if err != nil {
				t.Fatal(err)
			}
			lis, served := make(pipes), make(chan error, 1)
			server := &http.Server{Handler: s}
			go func() { served <- server.Serve(lis) }()
			near, far := net.Pipe()
			lis <- far
			_, _ = fmt.Fprintf(near, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}", path)
			resp, err := http.ReadResponse(bufio.NewReaderSize(near, 16), nil)
			if err != nil {
				t.Fatal(err)
			}
			for range 30 { // some events a minute, for half an hour
				time.Sleep(time.Minute)
				if _, err := io.ReadFull(resp.Body, make([]byte, 400)); err != nil {
					t.Fatalf("%s: a client that reads slowly: %v", path, err)
				}
			}
			stopped := time.Now()
			if after := (<-engine.left).Sub(stopped); after > bodies.Reader || after < bodies.Reader*6/8 {
				t.Errorf("%s: the engine is left %v after the client ceased to read", path, after)
			}
			_ = near.Close()
			_ = server.Close()
			<-served
		})
	}
}
