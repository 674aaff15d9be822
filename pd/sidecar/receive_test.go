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
	"testing"

	memory "github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestBodiesTakeMemory sends bodies that fit, that do not, and that break off. Their memory is
// released at the end of each request, not before.
func TestBodiesTakeMemory(t *testing.T) {
	b := memory.New(50 << 10)
	share := b.Share(memory.Bodies)
	during := int64(0)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		during = b.Used(memory.Bodies)
		_, _ = io.WriteString(w, `{}`)
	}))
	defer engine.Close()
	s, err := New(Options{Engine: engine.URL, Budget: b})
	if err != nil {
		t.Fatal(err)
	}
	path := ""
	ask := func(body io.Reader) int {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("POST", path, body))
		if used := b.Used(memory.Bodies); used != 0 {
			t.Errorf("%d bytes are still taken", used)
		}
		return w.Code
	}
	for _, path = range []string{"/v1/completions", "/invocations"} { // one is served in parts, one is passed on
		small := `{"model":"m","prompt":"a"}`
		if status := ask(strings.NewReader(small)); status != http.StatusOK || during != 4<<10 {
			t.Errorf("status %d, and %d bytes are taken while the engine works, want %d", status, during, 4<<10)
		}
		large := `{"model":"m","prompt":"` + strings.Repeat("x", int(share)) + `"}`
		if status := ask(strings.NewReader(large)); status != http.StatusServiceUnavailable {
			t.Errorf("status %d for a body of %d bytes, with memory for %d", status, len(large), share)
		}
		if status := ask(io.MultiReader(strings.NewReader(small), broken{})); status != http.StatusBadRequest {
			t.Errorf("status %d for a body that broke off", status)
		}
	}
}

// TestBodiesGiveWay fills the memory for bodies with one that withholds its end. A small body is
// still served, and the other client gets an error about memory.
func TestBodiesGiveWay(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{}`)
	}))
	defer engine.Close()
	const size, room = 3 << 20, 3<<20 + 1 // one more, so that the end is seen
	b := memory.New((room/2000 + 1) * 10_000)
	s, err := New(Options{Engine: engine.URL, Budget: b})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(s)
	defer front.Close()
	for _, path := range []string{"/v1/completions", "/invocations"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(front.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{%s", path, size, strings.Repeat(" ", size-2))
		testkit.Eventually(t, func() string {
			if n := b.Used(memory.Bodies); n != room {
				return fmt.Sprintf("%s: %d bytes of the large body are taken for the large body, want %d", path, n, room)
			}
			return ""
		})
		resp, err := http.Post(front.URL+path, "application/json", strings.NewReader(`{"model":"m","prompt":"a"}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d for a small body beside one that does not end", path, resp.StatusCode)
		}
		if resp, err = http.ReadResponse(bufio.NewReader(c), nil); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: status %d for the one that did not end", path, resp.StatusCode)
		}
		testkit.Eventually(t, func() string {
			if n := b.Used(memory.Bodies); n != 0 {
				return fmt.Sprintf("%s: %d bytes are still taken", path, n)
			}
			return ""
		})
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("broken off") }
