package conformance

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// reference is a picker that keeps every rule except the one whose case is the planted fault.
type reference struct {
	extproc.UnimplementedExternalProcessorServer
	grpc_health_v1.UnimplementedHealthServer
	fault  string // id of a case, or plain-body for bodies without streamed_response; "" for none
	pool   []string
	next   atomic.Int64
	active atomic.Int64
	dead   atomic.Bool
	shared atomic.Pointer[conversation] // newest stream, for faults that mix streams up
}

// startReference serves the picker on loopback and returns its address.
func startReference(t *testing.T, r *reference) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	extproc.RegisterExternalProcessorServer(g, r)
	grpc_health_v1.RegisterHealthServer(g, r)
	go func() { _ = g.Serve(l) }() // ends with the test
	t.Cleanup(g.Stop)
	return l.Addr().String()
}

var healthFaults = map[string]string{
	"liveness": "health-liveness", "readiness": "health-readiness", "envoy.service.ext_proc.v3.ExternalProcessor": "health-ext-proc",
	"": "health-server", "inference-extension": "health-inference-extension",
}

func (r *reference) Check(_ context.Context, q *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	fault, known := healthFaults[q.GetService()]
	if !known && r.fault != "health-unknown" || known && r.fault == fault {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func (r *reference) Watch(_ *grpc_health_v1.HealthCheckRequest, w grpc_health_v1.Health_WatchServer) error {
	if r.fault == "health-watch" {
		return status.Error(codes.Unimplemented, "no Watch")
	}
	return w.Send(&grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING})
}

// conversation is the state of one stream.
type conversation struct {
	*reference
	stream      extproc.ExternalProcessor_ProcessServer
	mode        mode
	hasConfig   bool
	method      string
	path        string
	subset      any
	hasSubset   bool
	parts       []string
	ended       bool
	chosen      string
	lastMessage time.Time
	status      string
	sse         bool
	held        []byte // response pieces that a fault holds back
}

var closed = status.Error(codes.Internal, "planted fault")

func (r *reference) Process(stream extproc.ExternalProcessor_ProcessServer) error {
	if r.dead.Load() || r.active.Add(1) > 10 && r.fault == "concurrent" {
		return closed
	}
	defer r.active.Add(-1)
	c := &conversation{reference: r, stream: stream, lastMessage: time.Now()}
	for {
		m, err := stream.Recv()
		if err != nil {
			if status.Code(err) == codes.Canceled && r.fault == "close-early" {
				r.dead.Store(true)
			}
			return nil //nolint:nilerr // the proxy has left
		}
		if err := c.handle(m); err != nil {
			return err
		}
		c.lastMessage = time.Now()
	}
}

func (c *conversation) handle(m *extproc.ProcessingRequest) error {
	switch v := m.GetRequest().(type) {
	case *extproc.ProcessingRequest_RequestHeaders:
		return c.requestHeaders(m, v.RequestHeaders)
	case *extproc.ProcessingRequest_RequestBody:
		return c.requestBody(v.RequestBody)
	case *extproc.ProcessingRequest_RequestTrailers:
		if c.fault == "duplex-trailers" {
			return nil
		}
		if err := c.end(); err != nil {
			return err
		}
		return c.send(&extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestTrailers{RequestTrailers: &extproc.TrailersResponse{}}})
	case *extproc.ProcessingRequest_ResponseHeaders:
		return c.responseHeaders(m, v.ResponseHeaders)
	case *extproc.ProcessingRequest_ResponseBody:
		return c.responseBody(v.ResponseBody)
	case *extproc.ProcessingRequest_ResponseTrailers:
		if c.fault == "response-trailers" {
			return nil
		}
		return c.send(&extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extproc.TrailersResponse{}}})
	}
	return nil
}

func (c *conversation) send(m *extproc.ProcessingResponse) error { return c.stream.Send(m) }

func (c *conversation) refuse(code typev3.StatusCode) error {
	return c.send(&extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extproc.ImmediateResponse{Status: &typev3.HttpStatus{Code: code}}}})
}

func (c *conversation) requestHeaders(m *extproc.ProcessingRequest, h *extproc.HttpHeaders) error {
	if h.GetHeaders() == nil && c.fault == "incomplete-messages" {
		c.dead.Store(true)
		return closed
	}
	c.mode, c.hasConfig = duplex, m.GetProtocolConfig() != nil
	if c.hasConfig {
		c.mode = m.GetProtocolConfig().GetRequestBodyMode()
	}
	for _, x := range h.GetHeaders().GetHeaders() {
		switch x.GetKey() {
		case ":method":
			c.method = string(x.GetRawValue())
		case ":path":
			c.path = string(x.GetRawValue())
		}
	}
	namespaces := []string{namespaceIn}
	if c.fault == "subset-other-metadata" {
		namespaces = append(namespaces, namespaceLB)
	}
	for _, name := range namespaces {
		if v, ok := m.GetMetadataContext().GetFilterMetadata()[name].GetFields()[subsetKey]; ok {
			c.subset, c.hasSubset = v.AsInterface(), true
		}
	}
	c.shared.Store(c)
	switch {
	case h.GetEndOfStream() && c.fault == "destination-without-body":
		return nil
	case h.GetEndOfStream() || c.mode == filterv3.ProcessingMode_NONE || c.mode == filterv3.ProcessingMode_STREAMED:
		if c.fault == "decision-time" {
			time.Sleep(210 * time.Millisecond)
		}
		_, err := c.place()
		return err
	case c.mode == filterv3.ProcessingMode_BUFFERED:
		return c.send(&extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestHeaders{RequestHeaders: &extproc.HeadersResponse{}}})
	}
	return nil
}

func (c *conversation) requestBody(b *extproc.HttpBody) error {
	switch {
	case c.method == "" && c.fault == "out-of-order":
		c.dead.Store(true)
		return closed
	case c.ended:
		if c.fault == "repeated-end" {
			return closed
		}
		return nil
	case c.fault == "duplex-slow" && time.Since(c.lastMessage) > 200*time.Millisecond:
		return closed
	}
	c.parts = append(c.parts, string(b.GetBody()))
	switch {
	case c.mode == filterv3.ProcessingMode_STREAMED:
		return c.send(&extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestBody{RequestBody: &extproc.BodyResponse{}}})
	case !b.GetEndOfStream():
		return nil
	case c.mode == filterv3.ProcessingMode_BUFFERED:
		_, err := c.placeIn(&extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestBody{RequestBody: &extproc.BodyResponse{Response: &extproc.CommonResponse{}}}})
		return err
	}
	return c.end()
}

// end answers a whole request in full duplex.
func (c *conversation) end() error {
	c.ended = true
	body := strings.Join(c.parts, "")
	var parsed struct{ Model string }
	bad := json.Unmarshal([]byte(body), &parsed)
	kinds := map[string]bool{
		"model-absent": bad == nil && parsed.Model == "" && c.path == "/v1/completions", "body-malformed": bad != nil && body != "", "body-empty": body == "",
		"body-huge": len(body) > 10<<20,
	}
	switch {
	case kinds[c.fault]:
		return closed
	case c.fault == "client-errors" && kinds["body-malformed"]:
		return c.refuse(500)
	case c.fault != "destination-any-path" && c.path != "/v1/completions":
	case kinds["model-absent"] || kinds["body-malformed"] || kinds["body-empty"] || c.path != "/v1/completions":
		return c.refuse(400)
	case parsed.Model == "a-model-without-an-endpoint":
		return c.refuse(404)
	}
	switch {
	case c.fault == "duplex-pieces" && len(c.parts) > 1:
		body = body[1:]
	case c.fault == "duplex-large" && len(body) > 1<<20:
		body = body[:1<<20]
	case c.fault == "duplex-bytes":
		body = strings.Replace(body, ": ", ":", 1)
	case c.fault == "duplex-order":
		return c.sendBody(body)
	}
	placed, err := c.place()
	if err != nil || !placed {
		return err
	}
	return c.sendBody(body)
}

func (c *conversation) sendBody(body string) error {
	for first := true; first || body != ""; first = false {
		n := min(len(body), 64<<10)
		if c.fault == "duplex-message-size" {
			n = len(body)
		}
		piece := &extproc.StreamedBodyResponse{Body: []byte(body[:n]), EndOfStream: n == len(body)}
		body = body[n:]
		response := &extproc.CommonResponse{BodyMutation: &extproc.BodyMutation{Mutation: &extproc.BodyMutation_StreamedResponse{StreamedResponse: piece}}}
		if c.fault == "duplex-without-config" && !c.hasConfig || c.fault == "plain-body" {
			response = nil
		}
		if err := c.send(&extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestBody{RequestBody: &extproc.BodyResponse{Response: response}}}); err != nil {
			return err
		}
	}
	return nil
}

// candidates returns the endpoints that the request may use.
func (c *conversation) candidates() []string {
	subset, has := c.subset, c.hasSubset
	if c.fault == "two-gateways" {
		subset, has = c.shared.Load().subset, c.shared.Load().hasSubset
	}
	if !has {
		return c.pool
	}
	var list []string
	switch v := subset.(type) {
	case string:
		list = strings.Split(v, ",")
	case []any:
		for _, x := range v {
			text, isText := x.(string)
			if !isText && c.fault == "subset-wrong-type" {
				return c.pool
			}
			list = append(list, text)
		}
	}
	var out []string
	parsed := 0
	for _, e := range list {
		e = strings.TrimSpace(e)
		if _, err := netip.ParseAddrPort(e); err == nil {
			parsed++
		}
		for _, p := range c.pool {
			if e == p || e != "" && strings.HasPrefix(p, e+":") {
				out = append(out, p)
			}
		}
	}
	ignore := map[string]bool{
		"subset-one": len(list) == 1, "subset-mixed": len(list) > len(out), "subset-without-body": c.method == "GET", "subset-empty": len(list) == 0,
		"subset-unknown": parsed > 0 && len(out) == 0, "subset-port": parsed == 1 && len(out) == 0, "subset-malformed": len(list) > 0 && parsed == 0,
	}
	if ignore[c.fault] {
		return c.pool
	}
	return out
}

// place answers the headers with a destination.
func (c *conversation) place() (bool, error) {
	return c.placeIn(&extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestHeaders{RequestHeaders: &extproc.HeadersResponse{Response: &extproc.CommonResponse{}}}})
}

func (c *conversation) placeIn(m *extproc.ProcessingResponse) (bool, error) {
	list := c.candidates()
	if len(list) == 0 {
		code := typev3.StatusCode(503)
		if c.fault == "no-endpoints" {
			code = 500
		}
		return false, c.refuse(code)
	}
	n := int(c.next.Add(1))
	c.chosen = list[n%len(list)]
	header, meta := c.chosen, c.chosen
	switch c.fault {
	case "destination-agree":
		meta = c.pool[(n+1)%len(c.pool)]
	case "destination-format":
		header, meta = "http://"+header, "http://"+meta
	case "destination-pool":
		header, meta = "192.0.2.9:1", "192.0.2.9:1"
	}
	option := &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: destination, RawValue: []byte(header)}}
	if c.fault == "destination-spoofed" {
		option.Append = wrapperspb.Bool(true) //nolint:staticcheck // older pickers set the deprecated field
	}
	if c.fault != "destination-header" {
		common := m.GetRequestHeaders().GetResponse()
		if common == nil {
			common = m.GetRequestBody().GetResponse()
		}
		common.HeaderMutation = &extproc.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{option}}
	}
	if c.fault != "destination-metadata" {
		fields := map[string]*structpb.Value{destination: structpb.NewStringValue(meta)}
		if at := slices.IndexFunc(c.pool, func(e string) bool { return e != c.chosen }); at >= 0 {
			fields[fallback] = structpb.NewStringValue(c.pool[at])
		}
		m.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{namespaceLB: structpb.NewStructValue(&structpb.Struct{Fields: fields})}}
	}
	return true, c.send(m)
}

func (c *conversation) responseHeaders(m *extproc.ProcessingRequest, h *extproc.HttpHeaders) error {
	at := m.GetMetadataContext().GetFilterMetadata()[namespaceLB].GetFields()[served].GetStringValue()
	for _, x := range h.GetHeaders().GetHeaders() {
		switch x.GetKey() {
		case ":status":
			c.status = string(x.GetRawValue())
		case "content-type":
			c.sse = string(x.GetRawValue()) == "text/event-stream"
		}
	}
	switch {
	case h.GetEndOfStream() && c.fault == "response-headers-only":
		return nil
	case c.fault == "response-served" && at != "" && at != c.chosen, c.fault == "response-error" && c.status == "500":
		return closed
	}
	set := []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-conformance-test-served-endpoint", RawValue: []byte(at)}}}
	return c.send(&extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseHeaders{
		ResponseHeaders: &extproc.HeadersResponse{Response: &extproc.CommonResponse{HeaderMutation: &extproc.HeaderMutation{SetHeaders: set}}},
	}})
}

func (c *conversation) responseBody(b *extproc.HttpBody) error {
	body := b.GetBody()
	switch {
	case c.fault == "response-body" && c.sse, c.fault == "response-json" && !c.sse:
		body = []byte(strings.TrimSpace(string(body)) + " ")
	case c.fault == "response-tokens":
		if c.held = append(c.held, body...); !b.GetEndOfStream() {
			return nil
		}
		body = c.held
	}
	return c.send(&extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseBody{ResponseBody: &extproc.BodyResponse{Response: &extproc.CommonResponse{
		BodyMutation: &extproc.BodyMutation{Mutation: &extproc.BodyMutation_StreamedResponse{StreamedResponse: &extproc.StreamedBodyResponse{Body: body, EndOfStream: b.GetEndOfStream()}}},
	}}}})
}
