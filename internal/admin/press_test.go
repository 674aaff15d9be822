package admin

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/internal/budget"
)

// TestSlowReaders: a client that requests pages without reading them does not delay others, however
// many connections it has.
func TestSlowReaders(t *testing.T) {
	large := strings.Repeat("a", 4<<20) // larger than socket buffers
	s, err := Open(Options{Bind: "127.0.0.1:0", Status: func() any { return large }, Listeners: budget.NewListeners(budget.New(4<<20), nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(t.Context()) }()
	for range 10 {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
		_, _ = io.ReadFull(c, make([]byte, 16)) // its response has started
	}
	for _, page := range []string{"/healthz", "/status"} {
		resp, err := http.Get("http://" + s.Addr().String() + page)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || err != nil || n == 0 {
			t.Errorf("%s: status %d, %d bytes, %v", page, resp.StatusCode, n, err)
		}
	}
}

// TestSlowReadersTakeMemory: pages being sent take limited memory. The oldest are aborted, and a
// client that reads gets its page.
func TestSlowReadersTakeMemory(t *testing.T) {
	large := strings.Repeat("a", 8<<20)                                                                              // larger than socket buffers
	s, err := Open(Options{Bind: "127.0.0.1:0", Status: func() any { return large }, Budget: budget.New(800 << 20)}) // less than two pages
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(t.Context()) }()
	var slow []*http.Response
	for range 3 {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil { // otherwise it may grow to the system's limit
			t.Fatal(err)
		}
		fmt.Fprint(c, "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		slow = append(slow, resp)
	}
	resp, err := http.Get("http://" + s.Addr().String() + "/status")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n < int64(len(large)) {
		t.Errorf("reading client got %d bytes, %v", n, err)
	}
	for i, resp := range slow {
		if n, err := io.Copy(io.Discard, resp.Body); err == nil {
			t.Errorf("slow reader %d of 3 got its page, %d bytes", i, n)
		}
	}
}

// TestPress: pages are rendered one at a time, for half of the time.
func TestPress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at, most atomic.Int64
		h := newPress(0).whole(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			most.Store(max(most.Load(), at.Add(1)))
			time.Sleep(10 * time.Millisecond)
			at.Add(-1)
			w.Header().Set("X-Page", "1")
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "page")
		}))
		begun := time.Now()
		done := make(chan *httptest.ResponseRecorder)
		for range 20 {
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
				done <- w
			}()
		}
		for range 20 {
			if w := <-done; w.Code != http.StatusTeapot || w.Body.String() != "page" || w.Header().Get("X-Page") != "1" {
				t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
			}
		}
		if took := time.Since(begun); most.Load() != 1 || took != 390*time.Millisecond {
			t.Errorf("%d at a time, 20 pages in %v", most.Load(), took)
		}
	})
}
