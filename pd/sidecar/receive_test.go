package sidecar

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	memory "github.com/grapevine-epp/grapevine/internal/budget"
)

// TestBodiesTakeMemory sends bodies that fit, that do not, and that break off: what was
// taken for them is given back at the end of each request, not before.
func TestBodiesTakeMemory(t *testing.T) {
	b := memory.New(5 << 10)
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
		if status := ask(strings.NewReader(small)); status != http.StatusOK || during != int64(len(small)) {
			t.Errorf("status %d, and %d bytes are taken while the engine works, want %d", status, during, len(small))
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

// TestReadAll reads bodies of all sizes, with and without an announced length, that come
// whole, byte by byte, and with their end.
func TestReadAll(t *testing.T) {
	for _, size := range []int{0, 1, firstRead - 1, firstRead, firstRead + 1, 3*firstRead + 7} {
		text := strings.Repeat("x", size)
		for _, announced := range []int64{-1, 0, int64(size) - 1, int64(size), int64(size) + 9} {
			for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
				got, err := readAll(r, announced)
				if string(got) != text || err != nil {
					t.Errorf("%d bytes of %d, announced %d: %v", len(got), size, announced, err)
				}
				if announced == int64(size) && cap(got) > max(size+1, 1)+firstRead/2 {
					t.Errorf("%d bytes are held for %d", cap(got), size)
				}
			}
		}
	}
	if _, err := readAll(io.MultiReader(strings.NewReader("x"), broken{}), 5); err == nil {
		t.Error("a body that broke off was taken for whole")
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("broken off") }
