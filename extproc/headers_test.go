package extproc

import (
	"context"
	"io"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/metadata"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/picker/request"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		says, date string
		want       time.Duration
	}{
		{"7", "", 7 * time.Second},
		{"", "", 0},
		{"-1", "", 0},
		{"99999999999999999999", "", 0},
		{"soon", "", 0},
		{"Tue, 24 Nov 2026 12:00:04 GMT", "", 4 * time.Second},
		{"Tue, 24 Nov 2026 11:00:00 GMT", "", 0},
		{"Tue, 24 Nov 2026 15:00:04 GMT", "Tue, 24 Nov 2026 15:00:00 GMT", 4 * time.Second}, // its clock is three hours ahead
		{"Tuesday, 24-Nov-26 12:00:02 GMT", "not a date", 2 * time.Second},
		{"Tue, 24 Nov 0001 12:00:00 GMT", "Tue, 24 Nov 9999 12:00:00 GMT", 0},
	} {
		v := headerView{[]wire.Header{{Name: wire.HeaderRetryAfter, Value: c.says}, {Name: wire.HeaderDate, Value: c.date}}}
		if got := v.retryAfter(now); got != c.want {
			t.Errorf("%q at %q: %v, want %v", c.says, c.date, got, c.want)
		}
	}
}

func viewOf(kv ...string) headerView {
	var list []wire.Header
	for i := 0; i < len(kv); i += 2 {
		list = append(list, wire.Header{Name: kv[i], Value: kv[i+1]})
	}
	return headerView{list}
}

// TestNumbersInHeaders: what is no number, or out of range, counts as absent.
func TestNumbersInHeaders(t *testing.T) {
	for _, c := range []struct {
		value            string
		status, attempts int
		length           int64
	}{
		{"", 0, 0, -1},
		{"0", 0, 0, 0},
		{"7", 7, 7, 7},
		{"999", 999, 999, 999},
		{"1000", 0, 1000, 1000},
		{"-1", 0, 0, -1},
		{"-7", 0, 0, -1},
		{"1e3", 0, 0, -1},
		{"9223372036854775808", 0, 0, -1},
		{"-9223372036854775809", 0, 0, -1},
	} {
		v := viewOf(wire.HeaderStatus, c.value, wire.HeaderAttempts, c.value, wire.HeaderContentLength, c.value)
		if got := v.status(); got != c.status {
			t.Errorf("status %q is read as %d, want %d", c.value, got, c.status)
		}
		if got := v.attempts(); got != c.attempts {
			t.Errorf("%q attempts are read as %d, want %d", c.value, got, c.attempts)
		}
		if got := v.contentLength(); got != c.length {
			t.Errorf("length %q is read as %d, want %d", c.value, got, c.length)
		}
	}
}

// TestLocalAnswers: only a plain text error without an upstream's time is Envoy's own.
func TestLocalAnswers(t *testing.T) {
	for _, c := range []struct {
		status, upstream, kind string
		want                   bool
	}{
		{"503", "", "text/plain", true},
		{"500", "", "text/plain; charset=utf-8", true},
		{"499", "", "text/plain", false},
		{"200", "", "text/plain", false},
		{"503", "12", "text/plain", false},
		{"503", "", "application/json", false},
	} {
		v := viewOf(wire.HeaderStatus, c.status, wire.HeaderUpstreamTime, c.upstream, wire.HeaderContentType, c.kind)
		if got := v.local(); got != c.want {
			t.Errorf("status %s, upstream time %q, type %s: local = %t, want %t", c.status, c.upstream, c.kind, got, c.want)
		}
	}
}

// TestBodiesThatAreRead: JSON and what clients send as JSON is read; upgrades, tunnels and other types are
// not.
func TestBodiesThatAreRead(t *testing.T) {
	for _, c := range []struct {
		method, upgrade, kind string
		unread, upgrades      bool
	}{
		{"POST", "", "application/json", false, false},
		{"POST", "", "Application/JSON; charset=utf-8", false, false},
		{"POST", "", "application/x+json", false, false},
		{"POST", "", "+json", true, false}, // no type before the suffix
		{"POST", "", "", false, false},
		{"POST", "", "text/plain", false, false},
		{"POST", "", "image/png", true, false},
		{"POST", "", "image/png, application/json", false, false},
		{"POST", "websocket", "application/json", true, true},
		{"GET", "websocket", "", true, false},
		{"CONNECT", "websocket", "", true, false},
		{"CONNECT", "", "", true, false},
		{"", "websocket", "", true, false},
	} {
		v := viewOf(wire.HeaderMethod, c.method, wire.HeaderUpgrade, c.upgrade, wire.HeaderContentType, c.kind)
		if got := v.bodyUnread(); got != c.unread {
			t.Errorf("%s, upgrade %q, type %q: unread = %t, want %t", c.method, c.upgrade, c.kind, got, c.unread)
		}
		if got := v.upgrades(); got != c.upgrades {
			t.Errorf("%s, upgrade %q, type %q: upgrades = %t, want %t", c.method, c.upgrade, c.kind, got, c.upgrades)
		}
	}
}

// TestRequestID: a request keeps the id that it has, and gets one otherwise.
func TestRequestID(t *testing.T) {
	for _, id := range []string{"", "r-1"} {
		l := &ledger{decision: request.Decision{Endpoints: []string{"10.0.0.1:80"}}}
		playHead(t, Options{Chooser: l}, wire.HeaderPath, "/v1/models", wire.HeaderRequestID, id)
		if got := l.requests[0].ID; got == "" || id != "" && got != id {
			t.Errorf("the request with id %q has the id %q", id, got)
		}
	}
}

// TestOwnAnswers: a request without a body may be answered by the server itself.
func TestOwnAnswers(t *testing.T) {
	l := &ledger{decision: request.Decision{Endpoints: []string{"10.0.0.1:80"}}}
	o := Options{Chooser: l, Answer: func(method, path string) (int, []byte, bool) {
		return 200, []byte(method), path == "/v1/models"
	}}
	if out := playHead(t, o, wire.HeaderPath, "/v1/models", wire.HeaderMethod, "GET"); out[0].GetImmediateResponse() == nil || len(l.requests) > 0 {
		t.Errorf("answered with %v after %d decisions, want an immediate response without one", out, len(l.requests))
	}
	if out := playHead(t, o, wire.HeaderPath, "/v1/other", wire.HeaderMethod, "GET"); out[0].GetImmediateResponse() != nil || len(l.requests) != 1 {
		t.Errorf("answered with %v after %d decisions, want a decision", out, len(l.requests))
	}
}

// playHead plays a request without a body, with full duplex bodies, and returns the replies.
func playHead(t *testing.T, o Options, kv ...string) []*extprocv3.ProcessingResponse {
	t.Helper()
	head := headersOf(kv...)
	head.EndOfStream = true
	o.Parse = func(*request.Request) error { return nil }
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	link := &scriptedLink{end: io.EOF, in: []*extprocv3.ProcessingRequest{{
		Request:        &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: head},
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: BodyFullDuplex, ResponseBodyMode: BodyFullDuplex}}}}
	if err := p.process(context.Background(), link); err != nil {
		t.Fatal(err)
	}
	if err := link.flush(); err != nil {
		t.Error(err)
	}
	if len(link.out) == 0 {
		t.Fatal("no reply")
	}
	return link.out
}

// TestWaited: the time that a proxy reports is accepted up to an hour; anything else counts as none.
func TestWaited(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"0": 0, "250": 250 * time.Millisecond, "3600000": time.Hour, "3600001": 0, "-1": 0, "-": 0, "": 0, "1.5": 0, "99999999999999999999": 0,
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(request.MetadataWaited, value))
		if got := waited(ctx); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
	if got := waited(t.Context()); got != 0 {
		t.Errorf("without metadata: %v, want 0", got)
	}
}
