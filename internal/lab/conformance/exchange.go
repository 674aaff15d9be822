package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Names of the protocol, verbatim.
const (
	destination = "x-gateway-destination-endpoint"
	served      = "x-gateway-destination-endpoint-served"
	subsetKey   = "x-gateway-destination-endpoint-subset"
	fallback    = "x-gateway-destination-endpoint-fallback"
	namespaceLB = "envoy.lb"
	namespaceIn = "envoy.lb.subset_hint"
)

// request is a client's request with the attributes that the proxy adds.
type request struct {
	method, path string
	headers      map[string]string
	chunks       []string // body; nil: headers only
	buffered     bool     // the proxy waits for the answer to the headers and sends the body in one message
	trailers     bool
	metadata     map[string]map[string]any
}

func (s *session) post(text string) request {
	body := fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":1}`, s.Model, text)
	return request{method: "POST", path: "/v1/completions", chunks: []string{body}}
}

// within returns the request with the given endpoint subset in its metadata.
func (r request) within(subset any) request {
	r.metadata = map[string]map[string]any{namespaceIn: {subsetKey: subset}}
	return r
}

// answer collects the picker's messages for a request and for the response that follows.
type answer struct {
	stream    extproc.ExternalProcessor_ProcessClient
	set       map[string]string
	removed   []string
	metadata  map[string]any // of namespace envoy.lb
	body      string         // request body as forwarded
	immediate *extproc.ImmediateResponse
}

// ask sends a request and reads until the answer is complete. The stream stays open until ctx ends.
func (s *session) ask(ctx context.Context, r request) (*answer, error) {
	stream, err := s.client.Process(ctx)
	if err != nil {
		return nil, err
	}
	a := &answer{stream: stream, set: map[string]string{}, metadata: map[string]any{}}
	head, err := r.head()
	if err != nil {
		return nil, err
	}
	if err := stream.Send(head); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if r.buffered {
		if err := a.read(func(m *extproc.ProcessingResponse) bool { return m.GetRequestHeaders() != nil }); err != nil || a.immediate != nil {
			return a, err
		}
	}
	for i, chunk := range r.chunks {
		last := i == len(r.chunks)-1 && !r.trailers
		m := &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestBody{RequestBody: &extproc.HttpBody{Body: []byte(chunk), EndOfStream: last}}}
		if err := stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	if r.trailers {
		m := &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestTrailers{RequestTrailers: &extproc.HttpTrailers{Trailers: &corev3.HeaderMap{}}}}
		if err := stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	return a, a.read(r.complete())
}

// complete returns a function that recognizes the last message of an answer.
func (r request) complete() func(*extproc.ProcessingResponse) bool {
	return func(m *extproc.ProcessingResponse) bool {
		switch {
		case r.chunks == nil:
			return m.GetRequestHeaders() != nil
		case r.trailers:
			return m.GetRequestTrailers() != nil
		case r.buffered:
			return m.GetRequestBody() != nil
		}
		return m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetEndOfStream()
	}
}

func (r request) head() (*extproc.ProcessingRequest, error) {
	h := &corev3.HeaderMap{}
	add := func(k, v string) {
		h.Headers = append(h.Headers, &corev3.HeaderValue{Key: k, RawValue: []byte(v)})
	}
	add(":method", r.method)
	add(":path", r.path)
	add(":scheme", "http")
	add(":authority", "conformance")
	add("content-type", "application/json")
	for k, v := range r.headers {
		add(k, v)
	}
	mode := filterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	if r.buffered {
		mode = filterv3.ProcessingMode_BUFFERED
	}
	m := &extproc.ProcessingRequest{
		Request:        &extproc.ProcessingRequest_RequestHeaders{RequestHeaders: &extproc.HttpHeaders{Headers: h, EndOfStream: r.chunks == nil}},
		ProtocolConfig: &extproc.ProtocolConfiguration{RequestBodyMode: mode, ResponseBodyMode: filterv3.ProcessingMode_FULL_DUPLEX_STREAMED},
	}
	for namespace, fields := range r.metadata {
		st, err := structpb.NewStruct(fields)
		if err != nil {
			return nil, err
		}
		if m.MetadataContext == nil {
			m.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{}}
		}
		m.MetadataContext.FilterMetadata[namespace] = st
	}
	return m, nil
}

// read collects messages up to the last one or an immediate response.
func (a *answer) read(last func(*extproc.ProcessingResponse) bool) error {
	for {
		m, err := a.stream.Recv()
		if err != nil {
			return fmt.Errorf("the stream ended before the answer was whole: %w", err)
		}
		if fields := m.GetDynamicMetadata().GetFields()[namespaceLB].GetStructValue(); fields != nil {
			for k, v := range fields.AsMap() {
				a.metadata[k] = v
			}
		}
		if a.immediate = m.GetImmediateResponse(); a.immediate != nil {
			return nil
		}
		for _, common := range []*extproc.CommonResponse{m.GetRequestHeaders().GetResponse(), m.GetRequestBody().GetResponse()} {
			a.mutate(common.GetHeaderMutation())
			switch b := common.GetBodyMutation(); {
			case b.GetStreamedResponse() != nil:
				a.body += string(b.GetStreamedResponse().GetBody())
			case b.GetBody() != nil:
				a.body = string(b.GetBody())
			}
		}
		if last(m) {
			return nil
		}
	}
}

func (a *answer) mutate(m *extproc.HeaderMutation) {
	for _, h := range m.GetSetHeaders() {
		v := h.GetHeader().GetValue()
		if raw := h.GetHeader().GetRawValue(); len(raw) > 0 {
			v = string(raw)
		}
		a.set[strings.ToLower(h.GetHeader().GetKey())] = v
	}
	a.removed = append(a.removed, m.GetRemoveHeaders()...)
}

// placed checks that header and metadata name the same endpoints, and only endpoints of the list.
func (a *answer) placed(among []netip.AddrPort) error {
	if a.immediate != nil {
		return fmt.Errorf("answered with %d %s instead of a destination", a.immediate.GetStatus().GetCode(), a.immediate.GetBody())
	}
	header, inHeader := a.set[destination]
	if !inHeader {
		return fmt.Errorf("no header %s", destination)
	}
	if meta, ok := a.metadata[destination].(string); !ok || meta != header {
		return fmt.Errorf("the header says %q, metadata %s says %v", header, namespaceLB, a.metadata[destination])
	}
	for part := range strings.SplitSeq(header, ",") {
		at, err := netip.ParseAddrPort(strings.TrimSpace(part))
		if err != nil {
			return fmt.Errorf("destination %q: %w", part, err)
		}
		if !slices.Contains(among, at) {
			return fmt.Errorf("destination %s is none of %v", at, among)
		}
	}
	return nil
}

// refused checks for an immediate response with a status code.
func (a *answer) refused(code int) error {
	switch {
	case a.immediate == nil:
		return fmt.Errorf("placed at %q, want an immediate response %d", a.set[destination], code)
	case int(a.immediate.GetStatus().GetCode()) != code:
		return fmt.Errorf("immediate response %d, want %d", a.immediate.GetStatus().GetCode(), code)
	}
	return nil
}

// respond sends an engine's response in full-duplex mode and returns the body that the picker
// returns.
func (a *answer) respond(servedBy string, chunks ...string) (string, error) {
	st, err := structpb.NewStruct(map[string]any{served: servedBy})
	if err != nil {
		return "", err
	}
	head := &extproc.ProcessingRequest{
		Request: &extproc.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extproc.HttpHeaders{Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
			{Key: ":status", RawValue: []byte("200")}, {Key: "content-type", RawValue: []byte("text/event-stream")},
		}}}},
		MetadataContext: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{namespaceLB: st}},
	}
	messages := []*extproc.ProcessingRequest{head}
	for i, c := range chunks {
		messages = append(messages, &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{
			ResponseBody: &extproc.HttpBody{Body: []byte(c), EndOfStream: i == len(chunks)-1},
		}})
	}
	for _, m := range messages {
		if err := a.stream.Send(m); err != nil {
			return "", err
		}
	}
	var body bytes.Buffer
	for {
		m, err := a.stream.Recv()
		if err != nil {
			return body.String(), fmt.Errorf("the stream ended before the response was whole: %w", err)
		}
		if m.GetImmediateResponse() != nil {
			return "", errors.New("an immediate response to a response")
		}
		part := m.GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse()
		body.Write(part.GetBody())
		if part.GetEndOfStream() {
			return body.String(), nil
		}
	}
}
