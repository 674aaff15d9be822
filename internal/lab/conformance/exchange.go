package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

// The names of the protocol, written out: the suite must not adopt the picker's definitions.
const (
	destination = "x-gateway-destination-endpoint"
	fallback    = "x-gateway-destination-endpoint-fallback"
	served      = "x-gateway-destination-endpoint-served"
	subsetKey   = "x-gateway-destination-endpoint-subset"
	namespaceLB = "envoy.lb"
	namespaceIn = "envoy.lb.subset_hint"
)

// mode is the way in which the proxy sends a body.
type mode = filterv3.ProcessingMode_BodySendMode

const (
	duplex      = filterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	buffering   = filterv3.ProcessingMode_BUFFERED
	streamed    = filterv3.ProcessingMode_STREAMED
	withoutBody = filterv3.ProcessingMode_NONE
)

// request is a client's request as a proxy forwards it.
type request struct {
	method, path string
	headers      map[string]string
	chunks       []string // body; nil for a request without a body
	trailers     bool
	mode         mode
	noConfig     bool          // without protocol_config, as proxies before Envoy 1.34
	pause        time.Duration // before each body message
	metadata     map[string]map[string]any
}

// get returns a request without a body.
func get(path string) request { return request{method: "GET", path: path, mode: duplex} }

// post returns a completions request.
func (s *session) post(text string) request {
	return s.raw(fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":1}`, s.Model, text))
}

// raw returns a completions request with the given body pieces.
func (s *session) raw(chunks ...string) request {
	return request{method: "POST", path: "/v1/completions", chunks: chunks, mode: duplex}
}

// within returns the request with the given endpoint subset in its metadata.
func (r request) within(subset any) request {
	r.metadata = map[string]map[string]any{namespaceIn: {subsetKey: subset}}
	return r
}

// cut returns the request with its body in pieces of n bytes.
func (r request) cut(n int) request {
	rest := strings.Join(r.chunks, "")
	r.chunks = nil
	for rest != "" {
		size := min(n, len(rest))
		r.chunks, rest = append(r.chunks, rest[:size]), rest[size:]
	}
	return r
}

// answer collects the picker's messages for a request and for the response that follows.
type answer struct {
	stream    extproc.ExternalProcessor_ProcessClient
	set       map[string]string // header mutations that take effect
	kept      []string          // headers whose mutation leaves a client's value in place
	metadata  map[string]any    // of namespace envoy.lb
	body      string            // request body as forwarded
	largest   int               // bytes of the largest body message
	heads     int               // answers to the request headers
	immediate *extproc.ImmediateResponse
	context   *corev3.Metadata // of each message of the request, as Envoy sends it
	sending   sync.WaitGroup   // the request's body
}

// ask sends a request and reads until the proxy knows the destination. The stream stays open until
// ctx ends.
func (s *session) ask(ctx context.Context, r request) (*answer, error) {
	return s.askAt(ctx, s.client, r, isHead)
}

// finish sends a request and reads until the answer is complete, with the body to forward.
func (s *session) finish(ctx context.Context, r request) (*answer, error) {
	a, err := s.askAt(ctx, s.client, r, r.complete())
	if err == nil && a.immediate == nil {
		a.sending.Wait()
	}
	return a, err
}

// askAt sends a request and reads until the last message, which counts only in full duplex.
func (s *session) askAt(ctx context.Context, client extproc.ExternalProcessorClient, r request, last func(*extproc.ProcessingResponse) bool) (*answer, error) {
	a, err := s.open(ctx, client, r)
	if err != nil {
		return nil, err
	}
	if r.mode == duplex {
		a.sending.Go(func() { _ = a.sendBody(r) }) // at the same time as the picker; read reports a broken stream
		return a, a.read(r, last)
	}
	if err := a.read(r, isHead); err != nil || a.immediate != nil || r.mode == withoutBody {
		return a, err
	}
	if r.mode == buffering && r.chunks != nil {
		r.chunks = []string{strings.Join(r.chunks, "")}
	}
	for i, chunk := range r.chunks {
		if err := a.send(bodyMessage(chunk, i == len(r.chunks)-1)); err != nil {
			return a, err
		}
		if err := a.read(r, func(m *extproc.ProcessingResponse) bool { return m.GetRequestBody() != nil }); err != nil || a.immediate != nil {
			return a, err
		}
	}
	return a, nil
}

// open starts a stream and sends the headers.
func (s *session) open(ctx context.Context, client extproc.ExternalProcessorClient, r request) (*answer, error) {
	stream, err := client.Process(ctx)
	if err != nil {
		return nil, endOf(err)
	}
	a := &answer{stream: stream, set: map[string]string{}, metadata: map[string]any{}}
	head, err := s.head(r)
	if err != nil {
		return nil, err
	}
	a.context = head.GetMetadataContext()
	return a, a.send(head)
}

// send sends a message. A stream that the picker has ended is reported by the next read.
func (a *answer) send(m *extproc.ProcessingRequest) error {
	if m.GetMetadataContext() == nil {
		m.MetadataContext = a.context
	}
	if err := a.stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
		return endOf(err)
	}
	return nil
}

// sendBody sends body and trailers.
func (a *answer) sendBody(r request) error {
	for i, chunk := range r.chunks {
		if r.pause > 0 {
			select {
			case <-time.After(r.pause):
			case <-a.stream.Context().Done():
				return nil
			}
		}
		if err := a.send(bodyMessage(chunk, i == len(r.chunks)-1 && !r.trailers)); err != nil {
			return err
		}
	}
	if r.trailers {
		return a.send(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestTrailers{RequestTrailers: &extproc.HttpTrailers{Trailers: &corev3.HeaderMap{}}}})
	}
	return nil
}

func bodyMessage(chunk string, last bool) *extproc.ProcessingRequest {
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestBody{RequestBody: &extproc.HttpBody{Body: []byte(chunk), EndOfStream: last}}}
}

func isHead(m *extproc.ProcessingResponse) bool { return m.GetRequestHeaders() != nil }

// complete returns a function that recognizes the last message of an answer in full duplex.
func (r request) complete() func(*extproc.ProcessingResponse) bool {
	return func(m *extproc.ProcessingResponse) bool {
		switch {
		case r.chunks == nil:
			return isHead(m)
		case r.trailers:
			return m.GetRequestTrailers() != nil
		}
		return m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetEndOfStream()
	}
}

func (s *session) head(r request) (*extproc.ProcessingRequest, error) {
	h := &corev3.HeaderMap{}
	add := func(k, v string) {
		h.Headers = append(h.Headers, &corev3.HeaderValue{Key: k, RawValue: []byte(v)})
	}
	add(":method", r.method)
	add(":path", r.path)
	add(":scheme", "http")
	add(":authority", "conformance")
	add("x-request-id", fmt.Sprintf("conformance-%d-%d", s.start.UnixNano(), s.requests.Add(1)))
	if r.chunks != nil {
		add("content-type", "application/json")
	}
	for k, v := range r.headers {
		add(k, v)
	}
	m := &extproc.ProcessingRequest{
		Request: &extproc.ProcessingRequest_RequestHeaders{RequestHeaders: &extproc.HttpHeaders{Headers: h, EndOfStream: r.chunks == nil}},
	}
	if !r.noConfig {
		m.ProtocolConfig = &extproc.ProtocolConfiguration{RequestBodyMode: r.mode, ResponseBodyMode: r.mode}
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

// errOrder is a violation of the order of messages.
var errOrder = errors.New("wrong order of messages")

// read collects messages up to the last one or an immediate response. Header mutations and
// metadata count only as far as the proxy uses them in this mode.
func (a *answer) read(r request, last func(*extproc.ProcessingResponse) bool) error {
	for {
		m, err := a.stream.Recv()
		if err != nil {
			return endOf(err)
		}
		if a.immediate = m.GetImmediateResponse(); a.immediate != nil {
			return nil
		}
		head, body := m.GetRequestHeaders().GetResponse(), m.GetRequestBody().GetResponse()
		if isHead(m) {
			a.heads++
		} else if a.heads == 0 && (m.GetRequestBody() != nil || m.GetRequestTrailers() != nil) {
			return fmt.Errorf("%w: an answer to body or trailers came before the answer to the headers", errOrder)
		}
		if isHead(m) || r.mode == buffering && m.GetRequestBody() != nil {
			a.mutate(head.GetHeaderMutation())
			a.mutate(body.GetHeaderMutation())
			for k, v := range m.GetDynamicMetadata().GetFields()[namespaceLB].GetStructValue().AsMap() {
				a.metadata[k] = v
			}
		}
		if part := body.GetBodyMutation().GetStreamedResponse(); part != nil {
			a.body += string(part.GetBody())
			a.largest = max(a.largest, len(part.GetBody()))
		}
		if last(m) {
			return nil
		}
	}
}

func (a *answer) mutate(m *extproc.HeaderMutation) {
	for _, h := range m.GetSetHeaders() {
		name, v := strings.ToLower(h.GetHeader().GetKey()), h.GetHeader().GetValue()
		if raw := h.GetHeader().GetRawValue(); len(raw) > 0 {
			v = string(raw)
		}
		a.set[name] = v
		if h.GetAppend().GetValue() || h.GetAppendAction() == corev3.HeaderValueOption_ADD_IF_ABSENT { //nolint:staticcheck // older pickers set the deprecated field
			a.kept = append(a.kept, name)
		}
	}
}

// endOf describes the end of a stream before the answer was complete.
func endOf(err error) error {
	switch st := status.Convert(err); {
	case errors.Is(err, io.EOF):
		return errors.New("the stream was closed without an error before the answer was complete")
	case st.Code() == codes.DeadlineExceeded || st.Code() == codes.Canceled:
		return errors.New("no complete answer within the time limit")
	case isUnreachable(st):
		return unreachable{err}
	case st.Code() == codes.Unavailable && strings.Contains(st.Message(), "error reading from server"):
		return errors.New("the connection broke before the answer was complete")
	default:
		return fmt.Errorf("the stream was closed with %s (%.120s) before the answer was complete", st.Code(), st.Message())
	}
}

// isUnreachable reports whether a call failed because there is no connection.
func isUnreachable(st *status.Status) bool {
	return st.Code() == codes.Unavailable && (strings.Contains(st.Message(), "Error while dialing") || strings.Contains(st.Message(), "handshake failed"))
}

// placed sends a request and checks the destination in the answer.
func (s *session) placed(ctx context.Context, r request, among []netip.AddrPort) (*answer, error) {
	a, err := s.ask(ctx, r)
	if err != nil {
		return a, err
	}
	_, err = a.destinations(among)
	return a, err
}

// destinations checks that header and metadata name the same endpoints, and only some of the list.
func (a *answer) destinations(among []netip.AddrPort) ([]netip.AddrPort, error) {
	if a.immediate != nil {
		return nil, fmt.Errorf("%s instead of a destination", a.refusal())
	}
	header, inHeader := a.set[destination]
	if !inHeader {
		return nil, fmt.Errorf("no header %s", destination)
	}
	if meta, ok := a.metadata[destination].(string); !ok || meta != header {
		return nil, fmt.Errorf("the header is %q, metadata %s is %v", header, namespaceLB, a.metadata[destination])
	}
	var list []netip.AddrPort
	for part := range strings.SplitSeq(header, ",") {
		at, err := netip.ParseAddrPort(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("destination %q: %w", part, err)
		}
		if !slices.Contains(among, at) {
			return nil, fmt.Errorf("destination %s is not one of %v", at, among)
		}
		list = append(list, at)
	}
	return list, nil
}

// refusal describes the immediate response.
func (a *answer) refusal() string {
	return "immediate response " + strconv.Itoa(int(a.immediate.GetStatus().GetCode()))
}

// refused sends a request and checks for an immediate response with a status code.
func (s *session) refused(ctx context.Context, r request, code int) (string, error) {
	return s.refusedAt(ctx, s.client, r, code)
}

func (s *session) refusedAt(ctx context.Context, client extproc.ExternalProcessorClient, r request, code int) (string, error) {
	a, err := s.askAt(ctx, client, r, isHead)
	switch {
	case err != nil:
		return "", err
	case a.immediate == nil:
		return "", fmt.Errorf("destination %q instead of status %d", a.set[destination], code)
	case int(a.immediate.GetStatus().GetCode()) != code:
		return "", fmt.Errorf("%s instead of %d", a.refusal(), code)
	}
	return a.refusal(), nil
}

// answered sends a request that the picker may place or refuse, and returns the answer.
func (s *session) answered(ctx context.Context, r request) (seen string, code int, err error) {
	a, err := s.ask(ctx, r)
	if err != nil {
		return "", 0, err
	}
	if a.immediate != nil {
		return a.refusal(), int(a.immediate.GetStatus().GetCode()), nil
	}
	_, err = a.destinations(s.known)
	return "placed", 0, err
}

// sameContent checks that a body was forwarded with its content: the same bytes, or the same JSON
// document in another encoding.
func sameContent(sent, forwarded string) error {
	if sent == forwarded {
		return nil
	}
	before, err := decode(sent)
	after, other := decode(forwarded)
	if err != nil || other != nil || !reflect.DeepEqual(before, after) {
		return fmt.Errorf("%d bytes of body were forwarded as %d with other content", len(sent), len(forwarded))
	}
	return nil
}

func decode(text string) (any, error) {
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	err := d.Decode(&v)
	return v, err
}
