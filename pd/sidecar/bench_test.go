package sidecar

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// repeating yields one event n times, each in a separate read, as engines send tokens.
type repeating struct {
	event string
	n     int
}

func (r *repeating) Read(p []byte) (int, error) {
	if r.n == 0 {
		return 0, io.EOF
	}
	r.n--
	return copy(p, r.event), nil
}

// discard is a response that is thrown away.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
func (d discard) Flush()                      {}

// stream passes n streamed events on.
func stream(tb testing.TB, n int) {
	x := &exchange{s: &Server{}, w: discard{http.Header{}}, r: httptest.NewRequest(http.MethodPost, "/", nil), api: kvtransfer.Chat}
	resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(&repeating{textEvent, n})}
	t := newStopped()
	if f := x.passStream(resp, &leg{cached: 7, again: true}, t); f != nil {
		tb.Fatal(f)
	}
}

// BenchmarkStreamedEvent is one event of a stream whose usage is rewritten.
func BenchmarkStreamedEvent(b *testing.B) {
	b.ReportAllocs()
	stream(b, b.N)
}

// TestStreamAllocates: the allocations of a stream do not grow with its events.
func TestStreamAllocates(t *testing.T) {
	few := testing.AllocsPerRun(20, func() { stream(t, 10) })
	many := testing.AllocsPerRun(20, func() { stream(t, 2000) })
	if many > few+4 { // a buffer may have been collected in between
		t.Errorf("%v allocations for 10 events, %v for 2,000", few, many)
	}
}

// BenchmarkPrefillBody edits a request of 40 KB for the prefill leg.
func BenchmarkPrefillBody(b *testing.B) {
	text := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word ", 8000) + `"}],"max_tokens":100,"stream":true}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		o, err := kvtransfer.Parse(text)
		if err != nil {
			b.Fatal(err)
		}
		kvtransfer.Chat.PrefillBody(&o, kvtransfer.Edit{Key: keyKVTransfer, Value: []byte(askKVTransfer)})
	}
}

func newStopped() *headWatch {
	t := &headWatch{timer: time.NewTimer(time.Hour)}
	t.stop()
	return t
}
