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
	"testing/iotest"

	memory "github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestBodiesTakeMemory sends bodies that fit, that do not, and that break off: what was
// taken for them is given back at the end of each request, not before.
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
		if status := ask(strings.NewReader(small)); status != http.StatusOK || during != firstRead {
			t.Errorf("status %d, and %d bytes are taken while the engine works, want %d", status, during, firstRead)
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

// TestBodiesGiveWay fills the memory for bodies with one that keeps its end back: a small one
// is served all the same, and the other client is told that there is no memory.
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

// TestRoomIsTaken: what is reserved for a body that was announced is taken from the budget, not
// what has come of it, and is twice that at most once it is large.
func TestRoomIsTaken(t *testing.T) {
	b := memory.New(1 << 30)
	holders, in := memory.NewHolders(b, memory.Bodies), new(intake)
	holders.Begin(&in.held, nil)
	for _, come := range []int{1, firstRead, 100 << 10, 2 << 20, 5<<20 + 1} {
		got, err := in.readAll(io.MultiReader(strings.NewReader(strings.Repeat("x", come)), broken{}), 100<<20)
		if err == nil || b.Used(memory.Bodies) != int64(cap(got)) || cap(got) > max(2*come, soonRoom) {
			t.Errorf("%d bytes came, %d are reserved and %d taken, %v", come, cap(got), b.Used(memory.Bodies), err)
		}
		in.held.End()
	}
}

// TestReadAll reads bodies of all sizes, with and without an announced length, that come
// whole, byte by byte, and with their end.
func TestReadAll(t *testing.T) {
	for _, size := range []int{0, 1, firstRead - 1, firstRead, firstRead + 1, 3*firstRead + 7} {
		text := strings.Repeat("x", size)
		for _, announced := range []int64{-1, 0, int64(size) - 1, int64(size), int64(size) + 9} {
			for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
				got, err := new(intake).readAll(r, announced)
				if string(got) != text || err != nil {
					t.Errorf("%d bytes of %d, announced %d: %v", len(got), size, announced, err)
				}
				if announced == int64(size) && cap(got) > max(size+1, 1)+firstRead/2 {
					t.Errorf("%d bytes are held for %d", cap(got), size)
				}
			}
		}
	}
	if _, err := new(intake).readAll(io.MultiReader(strings.NewReader("x"), broken{}), 5); err == nil {
		t.Error("a body that broke off was taken for whole")
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("broken off") }
