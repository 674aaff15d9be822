package scrape

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// counted starts a server and counts the connections that it took.
func counted(t *testing.T, secure bool, h http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var opened atomic.Int64
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s, &opened
}

func testTransport(t *testing.T) *transport {
	t.Helper()
	o := Options{}
	o.complete()
	tr := newTransport(&o)
	t.Cleanup(tr.close)
	return tr
}

// get reads an answer as a reading does.
func get(ctx context.Context, tr *transport, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := tr.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", string(b)), err
}

func TestTransportKeepsConnections(t *testing.T) {
	page := strings.Repeat("vllm:x 1\n", 5000)
	for name, c := range map[string]struct {
		secure bool
		h      http.HandlerFunc
		want   string
		conns  int64
	}{
		"chunked":       {false, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) }, "200 " + page, 1},
		"TLS":           {true, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) }, "200 " + page, 1},
		"length":        {false, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "short") }, "200 short", 1},
		"no content":    {false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, "204 ", 1},
		"redirect":      {false, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) }, "302 <a href=\"/x\">Found</a>.\n\n", 1},
		"early hints":   {false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); _, _ = io.WriteString(w, "then") }, "200 then", 1},
		"asks to close": {false, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") }, "200 ", 3},
	} {
		t.Run(name, func(t *testing.T) {
			s, opened := counted(t, c.secure, c.h)
			tr := testTransport(t)
			if c.secure {
				tr.tls = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
				tr.tls.RootCAs.AddCert(s.Certificate())
			}
			for range 3 {
				if got, err := get(t.Context(), tr, s.URL+"/metrics?a=b"); err != nil || got != c.want {
					t.Fatalf("%v, %.200q, want %.200q", err, got, c.want)
				}
			}
			if n := opened.Load(); n != c.conns {
				t.Errorf("%d connections for three readings, want %d", n, c.conns)
			}
		})
	}
}

func TestTransportUnknownAuthority(t *testing.T) {
	s, _ := counted(t, true, func(http.ResponseWriter, *http.Request) {})
	var unknown *tls.CertificateVerificationError
	if _, err := get(t.Context(), testTransport(t), s.URL); !errors.As(err, &unknown) {
		t.Errorf("a certificate of nobody: %v", err)
	}
}

// TestTransportPeerClosed loses the kept connection between two readings: the
// second one opens another, and nobody notices.
func TestTransportPeerClosed(t *testing.T) {
	s, opened := counted(t, false, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") })
	tr := testTransport(t)
	for range 3 {
		if got, err := get(t.Context(), tr, s.URL); err != nil || got != "200 x" {
			t.Fatal(got, err)
		}
		s.CloseClientConnections()
	}
	if n := opened.Load(); n != 3 {
		t.Errorf("%d connections, want 3", n)
	}
	s.Close()
	if _, err := get(t.Context(), tr, s.URL); causeOf(err) != causeDial {
		t.Errorf("nobody listens: %v", err)
	}
}

// TestTransportHostile answers with what no engine says.
func TestTransportHostile(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		want   error
	}{
		"endless head":       {"HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 20_000), errHead},
		"endless early head": {strings.Repeat("HTTP/1.1 103 Early\r\nA: b\r\n\r\n", 5000), errHead},
		"cut":                {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", io.ErrUnexpectedEOF},
		"nothing":            {"", io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			lis, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer lis.Close()
			go func() {
				for {
					conn, err := lis.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Read(make([]byte, 4096))
					_, _ = io.WriteString(conn, c.answer)
					_ = conn.Close()
				}
			}()
			if _, err := get(t.Context(), testTransport(t), "http://"+lis.Addr().String()); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// TestTransportCancelled ends readings whose engine is silent, before and
// within the answer.
func TestTransportCancelled(t *testing.T) {
	silent := make(chan struct{})
	s, _ := counted(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/half" {
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
		}
		<-silent
	})
	defer close(silent)
	tr := testTransport(t)
	for _, path := range []string{"/", "/half"} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		if _, err := get(ctx, tr, s.URL+path); !errors.Is(err, context.Canceled) {
			t.Errorf("%s cancelled: %v", path, err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := get(ctx, tr, s.URL+path); causeOf(err) != causeTimeout {
			t.Errorf("%s timed out: %v", path, err)
		}
		cancel()
	}
	if len(tr.idle) != 0 {
		t.Errorf("%d connections kept that were cut", len(tr.idle))
	}
}

// TestTransportForgets closes kept connections of engines that are gone.
func TestTransportForgets(t *testing.T) {
	now := time.Unix(0, 0)
	tr := testTransport(t)
	tr.now = func() time.Time { return now }
	one, _ := counted(t, false, func(http.ResponseWriter, *http.Request) {})
	two, _ := counted(t, false, func(http.ResponseWriter, *http.Request) {})
	for _, url := range []string{one.URL, two.URL, two.URL} {
		if _, err := get(t.Context(), tr, url); err != nil {
			t.Fatal(err)
		}
		now = now.Add(tr.keep * 2 / 3)
	}
	if len(tr.idle) != 1 || tr.idle[two.URL] == nil {
		t.Errorf("kept: %v, want the second alone", tr.idle)
	}
	tr.close()
	if _, err := get(t.Context(), tr, one.URL); err != nil || len(tr.idle) != 0 {
		t.Errorf("after close: %v, %d kept", err, len(tr.idle))
	}
}
