package flightrecorder

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

func open(t *testing.T, o Options) *Recorder {
	t.Helper()
	o.Registry, o.Name = prometheus.NewRegistry(), "replica 0/a"
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func text(name, content string) Part {
	return Part{name, func(context.Context) ([]byte, error) { return []byte(content), nil }}
}

func (r *Recorder) count(reason string) int {
	return int(testutil.ToFloat64(r.dropped.WithLabelValues(reason)))
}

// TestRecord: a record has stacks without arguments, a trace, and the parts without secrets. A part
// that hangs, fails or panics is named as missing, and a hanging one is not called again.
func TestRecord(t *testing.T) {
	free := make(chan struct{})
	defer close(free)
	calls := 0
	r := open(t, Options{
		Trace:   time.Second,
		Secrets: func() [][]byte { return [][]byte{[]byte("hunter22"), []byte("of")} },
		Parts: []Part{
			text("a.txt", "the key is hunter22, of course"),
			{"hangs", func(context.Context) ([]byte, error) { calls++; <-free; return nil, nil }},
			{"fails", func(context.Context) ([]byte, error) { return nil, errors.New("no hunter22") }},
			{"panics", func(context.Context) ([]byte, error) { panic("at the disco") }},
			{"large", func(context.Context) ([]byte, error) { return make([]byte, maxPart+1), nil }},
		},
	})
	for range 2 {
		rec, content, err := r.Record(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		files := testkit.Unpack(t, content)
		if got := files["a.txt"]; got != "the key is [removed], of course" {
			t.Errorf("a.txt: %q", got)
		}
		if !strings.Contains(files[fileGoroutines], "flightrecorder.TestRecord") || strings.Contains(files[fileGoroutines], "(0x") {
			t.Errorf("stacks: %.300s", files[fileGoroutines])
		}
		if !strings.HasPrefix(files[fileTrace], "go 1.") {
			t.Errorf("trace: %.20q", files[fileTrace])
		}
		var m manifest
		if err := json.Unmarshal([]byte(files[fileManifest]), &m); err != nil {
			t.Fatal(err)
		}
		if m.Trigger != "request" || m.Name != rec.Name || len(m.Missing) != 4 || m.Missing["fails"] != "no [removed]" || m.Missing["hangs"] == "" {
			t.Errorf("manifest: %+v", m)
		}
	}
	if calls != 1 {
		t.Errorf("hanging part called %d times, want 1", calls)
	}
}

// TestTraceOfTheNextSecond: without a running trace, a record has the trace of the second after it.
func TestTraceOfTheNextSecond(t *testing.T) {
	r := open(t, Options{})
	began := time.Now()
	_, content, err := r.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if files := testkit.Unpack(t, content); !strings.HasPrefix(files[fileTrace], "go 1.") || time.Since(began) < traceAfter {
		t.Errorf("trace after %v: %.20q", time.Since(began), files[fileTrace])
	}
}

// TestLimits: the store keeps the newest records within number and size, in memory and in a folder,
// also those of an earlier process. Lost records are counted.
func TestLimits(t *testing.T) {
	for _, dir := range []string{"", filepath.Join(t.TempDir(), "records")} {
		r := open(t, Options{Dir: dir, Count: 3, Bytes: 1 << 20, DirBytes: 1 << 20, Trace: time.Second})
		var last string
		for range 5 {
			rec, _, err := r.Record(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			last = rec.Name
		}
		if list := r.store.records(); len(list) != 3 || list[0].Name != last || r.count(droppedOld) != 2 {
			t.Errorf("%q: %v, %d replaced", dir, list, r.count(droppedOld))
		}
		r.Close()
		if dir == "" {
			continue
		}
		r = open(t, Options{Dir: dir, Count: 2, DirBytes: 1 << 20})
		list := r.store.records()
		if len(list) != 1 || list[0].Trigger != "request" { // room for the next one
			t.Errorf("records of the earlier process: %v", list)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
			t.Errorf("%d files, %v", len(files), err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := open(t, Options{Dir: file}); r.store.dir != "" {
		t.Errorf("records are in %s, want memory instead of an unusable folder", r.store.dir)
	}
	r := open(t, Options{Bytes: 100, Trace: time.Second})
	if _, content, err := r.Record(t.Context()); err != nil || len(content) == 0 || len(r.store.records()) != 0 || r.count(droppedSize) != 1 {
		t.Errorf("record beyond the limit: %v, %d bytes, %d stored", err, len(content), len(r.store.records()))
	}
}

// TestTriggers: each trigger makes one record in five minutes, and the others are counted.
func TestTriggers(t *testing.T) {
	r := open(t, Options{Trace: time.Second})
	now := time.Now()
	r.now = func() time.Time { return now }
	trigger := func(kind Trigger, wantRecords, wantDropped int) {
		t.Helper()
		r.Trigger(kind, "detail")
		for len(r.store.records()) < wantRecords {
			if _, err := r.record(t.Context(), <-r.wanted); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(r.store.records()); n != wantRecords || r.count(droppedRecent) != wantDropped || len(r.wanted) > 0 {
			t.Errorf("%d records, %d dropped, want %d and %d", n, r.count(droppedRecent), wantRecords, wantDropped)
		}
	}
	trigger(Slow, 1, 0)
	trigger(Slow, 1, 1)
	trigger(Health, 2, 1)
	now = now.Add(Interval)
	trigger(Slow, 3, 1)
	(*Recorder)(nil).Trigger(Slow, "ignored")
}

// TestHandler requests, lists and fetches records. A second request during the first one is refused.
func TestHandler(t *testing.T) {
	free, begun := make(chan struct{}), make(chan struct{}, 1)
	r := open(t, Options{Trace: time.Second, Parts: []Part{{"a", func(context.Context) ([]byte, error) { begun <- struct{}{}; <-free; return nil, nil }}}})
	mux := http.NewServeMux()
	for _, pattern := range []string{"POST /f", "GET /f", "GET /f/{name}"} {
		mux.Handle(pattern, r)
	}
	ask := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w
	}
	made := make(chan *httptest.ResponseRecorder)
	go func() { made <- ask("POST", "/f") }()
	<-begun
	if w := ask("POST", "/f"); w.Code != http.StatusTooManyRequests || r.count(droppedBusy) != 1 {
		t.Errorf("second request: %d, %d counted", w.Code, r.count(droppedBusy))
	}
	close(free)
	record := <-made
	var list []Record
	if err := json.Unmarshal(ask("GET", "/f").Body.Bytes(), &list); err != nil || len(list) != 1 {
		t.Fatalf("list: %v, %v", list, err)
	}
	if w := ask("GET", "/f/"+list[0].Name); !bytes.Equal(w.Body.Bytes(), record.Body.Bytes()) || !strings.Contains(w.Header().Get("Content-Disposition"), list[0].Name) {
		t.Errorf("fetched %d bytes, made %d, %v", w.Body.Len(), record.Body.Len(), w.Header())
	}
	if w := ask("GET", "/f/..%2f..%2fetc%2fpasswd"); w.Code != http.StatusNotFound {
		t.Errorf("other file: %d", w.Code)
	}
}

// TestStacksWithoutArguments removes arguments and labels, and keeps functions and lines.
func TestStacksWithoutArguments(t *testing.T) {
	in := "goroutine 7 [select, 3 minutes] {\"user\": \"alice\"}:\nmain.(*T).run(0xc000012345, {0x6c6f6f6b, 0x5})\n\t/src/main.go:12 +0x1d\ncreated by main.main in goroutine 1\n\t/src/main.go:5 +0x2\n\n"
	want := "goroutine 7 [select, 3 minutes]\nmain.(*T).run\n\t/src/main.go:12 +0x1d\ncreated by main.main in goroutine 1\n\t/src/main.go:5 +0x2\n\n"
	if got := string(withoutArguments([]byte(in))); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
