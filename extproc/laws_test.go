package extproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/picker/request"
)

var allModes = []BodyMode{BodyNone, BodyStreamed, BodyBuffered, BodyBufferedPartial, BodyFullDuplex}

// exchange is one request and its answer as a proxy would play it.
type exchange struct {
	request, response      BodyMode
	early                  bool
	in, out                [][]byte // body chunks
	inTrailers, outTrailer bool
}

func anyExchange(t *rapid.T) exchange {
	chunk := rapid.Custom(func(t *rapid.T) []byte {
		return bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, rapid.IntRange(0, 3000).Draw(t, "size"))
	})
	chunks := rapid.SliceOfN(chunk, 0, 6)
	e := exchange{
		request:    rapid.SampledFrom(allModes).Draw(t, "request mode"),
		response:   rapid.SampledFrom(allModes).Draw(t, "response mode"),
		early:      rapid.Bool().Draw(t, "early"),
		in:         chunks.Draw(t, "in"),
		out:        chunks.Draw(t, "out"),
		inTrailers: rapid.Bool().Draw(t, "request trailers"),
		outTrailer: rapid.Bool().Draw(t, "response trailers"),
	}
	if rapid.Bool().Draw(t, "large") {
		e.in = append(e.in, make([]byte, 100_000), make([]byte, 100_000))
		e.out = append(e.out, make([]byte, 200_000))
	}
	return e
}

func headersOf(kv ...string) *extprocv3.HttpHeaders {
	h := &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{}}
	for i := 0; i < len(kv); i += 2 {
		h.Headers.Headers = append(h.Headers.Headers, &corev3.HeaderValue{Key: kv[i], RawValue: []byte(kv[i+1])})
	}
	return h
}

// messages returns the proxy's messages for the exchange.
func (e exchange) messages() (list []*extprocv3.ProcessingRequest) {
	head := headersOf(wire.HeaderPath, "/v1/completions")
	head.EndOfStream = len(e.in) == 0 && !e.inTrailers
	list = append(list, &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: head},
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: e.request, ResponseBodyMode: e.response,
			SendBodyWithoutWaitingForHeaderResponse: e.early}})
	for i, c := range bodyMessages(e.request, e.in) {
		end := i == len(bodyMessages(e.request, e.in))-1 && !e.inTrailers
		list = append(list, &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
			RequestBody: &extprocv3.HttpBody{Body: c, EndOfStream: end}}})
	}
	if e.inTrailers {
		list = append(list, &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{
			RequestTrailers: &extprocv3.HttpTrailers{}}})
	}
	answer := headersOf(wire.HeaderStatus, "200", wire.HeaderContentType, "text/event-stream")
	answer.EndOfStream = len(e.out) == 0 && !e.outTrailer
	list = append(list, &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: answer}})
	for i, c := range bodyMessages(e.response, e.out) {
		end := i == len(bodyMessages(e.response, e.out))-1 && !e.outTrailer
		list = append(list, &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{
			ResponseBody: &extprocv3.HttpBody{Body: c, EndOfStream: end}}})
	}
	if e.outTrailer {
		list = append(list, &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{
			ResponseTrailers: &extprocv3.HttpTrailers{}}})
	}
	return list
}

// bodyMessages cuts a body as the mode sends it.
func bodyMessages(mode BodyMode, chunks [][]byte) [][]byte {
	switch {
	case mode == BodyNone || len(chunks) == 0:
		return nil
	case mode == BodyBuffered || mode == BodyBufferedPartial:
		return [][]byte{bytes.Join(chunks, nil)}
	default:
		return chunks
	}
}

// runStream plays messages and returns the link and the stream's error.
func runStream(t *rapid.T, l *ledger, list []*extprocv3.ProcessingRequest, end error, change func(*scriptedLink)) (*scriptedLink, error) {
	p, err := New(Options{Chooser: l, Parse: func(*request.Request) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	link := &scriptedLink{in: list, end: end, cut: rapid.SampledFrom([]int{0, 300, 16384}).Draw(t, "cut")}
	if change != nil {
		change(link)
	}
	err = p.process(context.Background(), link)
	if err := link.flush(); err != nil {
		t.Error(err)
	}
	return link, err
}

// TestWholeExchange: a proxy that follows the protocol gets every expected answer, in order, and
// the same bytes that it sent.
func TestWholeExchange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anyExchange(t)
		l := &ledger{decision: request.Decision{Endpoints: []string{"10.0.0.1:80"}}}
		list := e.messages()
		link, err := runStream(t, l, list, status.Error(codes.Canceled, "reset"), nil)
		if err != nil {
			t.Fatalf("stream ended with %v", err)
		}
		if len(l.requests) != 1 || len(l.done) != 1 {
			t.Fatalf("%d decisions, %d releases, want 1 and 1", len(l.requests), len(l.done))
		}
		if !l.done[0].Complete && e.response != BodyNone {
			t.Error("a complete response was taken for an aborted one")
		}
		if want := bytes.Join(bodyMessages(e.request, e.in), nil); e.request == BodyFullDuplex || e.request == BodyBuffered {
			if len(l.requests[0].Body) != len(want) {
				t.Errorf("the chooser saw %d bytes, want %d", len(l.requests[0].Body), len(want))
			}
		}
		checkDirection(t, link.out, e.request, e.in, list, false)
		checkDirection(t, link.out, e.response, e.out, list, true)
	})
}

// checkDirection compares the answers of one direction with its messages.
func checkDirection(t *rapid.T, out []*extprocv3.ProcessingResponse, mode BodyMode, sent [][]byte, list []*extprocv3.ProcessingRequest, response bool) {
	var want, got string
	for _, m := range list {
		if part, r := messagePart(m); r == response {
			want += part
		}
	}
	var body []byte
	ends := 0
	for _, m := range out {
		part, r, chunk := replyPart(m)
		if r != response {
			continue
		}
		if chunk != nil {
			body = append(body, chunk.Body...)
			if len(chunk.Body) > wire.MaxChunk {
				t.Errorf("a chunk of %d bytes", len(chunk.Body))
			}
			if chunk.EndOfStream {
				ends++
			}
		}
		got += part
	}
	if mode != BodyFullDuplex {
		if got != want {
			t.Errorf("%v: answered %q, want %q", mode, got, want)
		}
		return
	}
	if !bytes.Equal(body, bytes.Join(sent, nil)) {
		t.Errorf("%d bytes came back, %d were sent", len(body), len(bytes.Join(sent, nil)))
	}
	if squeeze(got) != squeeze(want) && squeeze(got) != squeeze(dropBody(want, sent)) {
		t.Errorf("answered %q to %q", got, want)
	}
	if ends > 1 {
		t.Errorf("%d ends of one body", ends)
	}
}

func messagePart(m *extprocv3.ProcessingRequest) (string, bool) {
	switch m.Request.(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		return "h", false
	case *extprocv3.ProcessingRequest_RequestBody:
		return "b", false
	case *extprocv3.ProcessingRequest_RequestTrailers:
		return "t", false
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		return "h", true
	case *extprocv3.ProcessingRequest_ResponseBody:
		return "b", true
	default:
		return "t", true
	}
}

func replyPart(m *extprocv3.ProcessingResponse) (part string, response bool, chunk *extprocv3.StreamedBodyResponse) {
	switch r := m.Response.(type) {
	case *extprocv3.ProcessingResponse_RequestHeaders:
		return "h", false, nil
	case *extprocv3.ProcessingResponse_RequestBody:
		return "b", false, r.RequestBody.GetResponse().GetBodyMutation().GetStreamedResponse()
	case *extprocv3.ProcessingResponse_RequestTrailers:
		return "t", false, nil
	case *extprocv3.ProcessingResponse_ResponseHeaders:
		return "h", true, nil
	case *extprocv3.ProcessingResponse_ResponseBody:
		return "b", true, r.ResponseBody.GetResponse().GetBodyMutation().GetStreamedResponse()
	case *extprocv3.ProcessingResponse_ResponseTrailers:
		return "t", true, nil
	default:
		return "i", false, nil
	}
}

// squeeze shortens each run of equal letters to one.
func squeeze(s string) (out string) {
	for i := range len(s) {
		if i == 0 || s[i] != s[i-1] {
			out += s[i : i+1]
		}
	}
	return out
}

// dropBody removes the body of an exchange if all its chunks are empty: it then needs no message
// before trailers.
func dropBody(want string, sent [][]byte) (out string) {
	if len(bytes.Join(sent, nil)) > 0 {
		return want
	}
	for _, c := range want {
		if c != 'b' {
			out += string(c)
		}
	}
	return out
}

// anyMessage returns one message of any kind, valid at this point or not.
func anyMessage(t *rapid.T) *extprocv3.ProcessingRequest {
	m := &extprocv3.ProcessingRequest{}
	end := rapid.Bool().Draw(t, "end")
	body := &extprocv3.HttpBody{Body: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "body"), EndOfStream: end}
	head := headersOf(wire.HeaderPath, "/", wire.HeaderStatus, "200", wire.HeaderContentType, "text/event-stream")
	head.EndOfStream = end
	switch rapid.IntRange(0, 6).Draw(t, "part") {
	case 0:
		m.Request = &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: head}
	case 1:
		m.Request = &extprocv3.ProcessingRequest_RequestBody{RequestBody: body}
	case 2:
		m.Request = &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}
	case 3:
		m.Request = &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: head}
	case 4:
		m.Request = &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: body}
	case 5:
		m.Request = &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}
	}
	return m
}

// anyOrder sends any messages in any order with any end. Each decision is released exactly once,
// nothing panics, and a stream in observability mode sends nothing.
func anyOrder(t *rapid.T) {
	list := rapid.SliceOfN(rapid.Custom(anyMessage), 1, 12).Draw(t, "messages")
	list[0].ProtocolConfig = &extprocv3.ProtocolConfiguration{
		RequestBodyMode:                         rapid.SampledFrom(allModes).Draw(t, "request mode"),
		ResponseBodyMode:                        rapid.SampledFrom(allModes).Draw(t, "response mode"),
		SendBodyWithoutWaitingForHeaderResponse: rapid.Bool().Draw(t, "early"),
	}
	list[0].ObservabilityMode = rapid.Bool().Draw(t, "observe")
	end := rapid.SampledFrom([]error{io.EOF, status.Error(codes.Canceled, ""), errors.New("lost")}).Draw(t, "end error")
	l := &ledger{decision: request.Decision{
		Endpoints:   rapid.SampledFrom([][]string{{"a"}, {"a", "b"}, nil}).Draw(t, "endpoints"),
		ModelTarget: rapid.SampledFrom([]string{"", "other"}).Draw(t, "rename"),
	}}
	if rapid.Bool().Draw(t, "refuse") {
		l.err = request.Errorf(request.ReasonSaturated, "no")
	}
	observe := list[0].ObservabilityMode
	link, err := runStream(t, l, list, end, func(s *scriptedLink) { s.fail = rapid.IntRange(0, 6).Draw(t, "send fails") })
	if status.Code(err) == codes.Internal {
		t.Fatalf("panicked: %v", err)
	}
	if len(l.requests) > 1 || len(l.done) != len(l.requests) {
		t.Fatalf("%d decisions, %d releases", len(l.requests), len(l.done))
	}
	if observe && len(link.out) > 0 {
		t.Fatalf("an onlooker sent %d messages", len(link.out))
	}
	for _, r := range l.requests {
		if whole := len(r.Body) > 0 && !observe; r.Copyable && !whole {
			t.Fatal("a request may be copied that did not come whole, or does not go where it is placed")
		}
	}
}

func TestAnyOrder(t *testing.T) {
	for range 30 {
		rapid.Check(t, anyOrder)
	}
}

func FuzzAnyOrder(f *testing.F) { f.Fuzz(rapid.MakeFuzz(anyOrder)) }

// TestSlowLink: bytes passed to gRPC stay unchanged while other streams reuse the stream and its
// memory.
func TestSlowLink(t *testing.T) {
	l := &ledger{decision: request.Decision{Endpoints: []string{"10.0.0.1:80"}}}
	p, err := New(Options{Chooser: l, Parse: func(*request.Request) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	var links []*scriptedLink
	for i := range 50 {
		chunk := bytes.Repeat([]byte{byte(i)}, 3000)
		e := exchange{request: BodyFullDuplex, response: BodyFullDuplex, in: [][]byte{chunk, chunk}, out: [][]byte{chunk}}
		link := &scriptedLink{in: e.messages(), end: io.EOF}
		links = append(links, link)
		if err := p.process(context.Background(), link); err != nil {
			t.Fatal(err)
		}
	}
	for i, link := range links {
		if err := link.flush(); err != nil {
			t.Error(fmt.Errorf("stream %d: %w", i, err))
		}
		if !l.requests[i].Copyable {
			t.Errorf("stream %d: its body came whole, and may not be copied", i)
		}
	}
}

// TestUnknownModes: a proxy with unknown body modes is served like one that names none, and no
// table is read beyond its end.
func TestUnknownModes(t *testing.T) {
	o := Options{Assume: &Modes{BodyBuffered, BodyStreamed}, AllowModeOverride: true}
	for _, mode := range []BodyMode{-1 << 31, -1, BodyFullDuplex + 1, 1<<31 - 1} {
		for _, quiet := range []bool{false, true} {
			var m wire.Inbound
			m.Config.Present, m.Config.Request, m.Config.Response = true, mode, mode
			got := modesOf(&m, &o, quiet)
			if got.Modes != *o.Assume {
				t.Errorf("mode %d: %+v", mode, got)
			}
			if (got.headOverride() != nil) != quiet {
				t.Errorf("mode %d, quiet %v: override %v", mode, quiet, got.headOverride())
			}
		}
	}
}
