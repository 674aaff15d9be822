package bench

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// picker is a trivial external processor with one destination and configurable faults.
type picker struct {
	extproc.UnimplementedExternalProcessorServer

	fault  string
	delay  time.Duration                      // before it reads a stream
	ask    filter.ProcessingMode_BodySendMode // response body mode that it requests in buffered mode
	seen   atomic.Int64                       // streams
	chunks atomic.Int64                       // request body chunks
	mu     sync.Mutex                         // guards the rest
	last   map[string]string                  // headers of the last request
	modes  *extproc.ProtocolConfiguration     // of the last request
	body   []byte                             // of the last request
	resp   []byte                             // of the last response
}

// serve starts the picker on a free port until the test ends.
func (p *picker) serve(t *testing.T, opts ...grpc.ServerOption) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(largestMessage))...)
	extproc.RegisterExternalProcessorServer(srv, p)
	done := make(chan struct{})
	go func() { defer close(done); srv.Serve(lis) }()
	t.Cleanup(func() { srv.Stop(); <-done })
	return lis.Addr().String()
}

func (p *picker) Process(s extproc.ExternalProcessor_ProcessServer) error {
	p.seen.Add(1)
	time.Sleep(p.delay)
	switch p.fault {
	case "hang":
		<-s.Context().Done()
		return s.Context().Err()
	case "error":
		return status.Error(codes.Internal, "no")
	case "close":
		return nil
	}
	v := &visit{picker: p, stream: s}
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return v.end()
		}
		if err != nil {
			return err
		}
		if err := v.answer(m); err != nil {
			return err
		}
		if v.done {
			return nil
		}
	}
}

// visit is one stream.
type visit struct {
	*picker
	stream   extproc.ExternalProcessor_ProcessServer
	duplex   bool
	done     bool
	req, res []byte
}

func (v *visit) end() error {
	v.mu.Lock()
	v.body, v.resp = v.req, v.res
	v.mu.Unlock()
	if v.fault == "extra" {
		return v.stream.Send(&answer{Response: &extproc.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extproc.TrailersResponse{}}})
	}
	return nil
}

func (v *visit) answer(m *message) error {
	switch r := m.GetRequest().(type) {
	case *extproc.ProcessingRequest_RequestHeaders:
		return v.requestHeaders(m, r.RequestHeaders)
	case *extproc.ProcessingRequest_RequestBody:
		v.req = append(v.req, r.RequestBody.GetBody()...)
		v.chunks.Add(1)
		return v.requestBody(r.RequestBody)
	case *extproc.ProcessingRequest_ResponseHeaders:
		return v.stream.Send(&answer{Response: &extproc.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extproc.HeadersResponse{}}})
	case *extproc.ProcessingRequest_ResponseBody:
		v.res = append(v.res, r.ResponseBody.GetBody()...)
		body := &extproc.BodyResponse{}
		if v.duplex {
			body.Response = streamed(r.ResponseBody.GetBody(), r.ResponseBody.GetEndOfStream())
		}
		return v.stream.Send(&answer{Response: &extproc.ProcessingResponse_ResponseBody{ResponseBody: body}})
	}
	return status.Error(codes.InvalidArgument, "unexpected message")
}

func (v *visit) requestHeaders(m *message, h *extproc.HttpHeaders) error {
	v.mu.Lock()
	v.last = map[string]string{}
	for _, hv := range h.GetHeaders().GetHeaders() {
		v.last[hv.GetKey()] = string(hv.GetRawValue())
	}
	v.modes = m.GetProtocolConfig()
	v.mu.Unlock()
	v.duplex = m.GetProtocolConfig().GetRequestBodyMode() == filter.ProcessingMode_FULL_DUPLEX_STREAMED
	if v.duplex && v.fault != "eager" {
		return nil
	}
	return v.sendHeaders()
}

func (v *visit) sendHeaders() error {
	a := &answer{Response: &extproc.ProcessingResponse_RequestHeaders{RequestHeaders: &extproc.HeadersResponse{}}}
	if v.duplex {
		a.GetRequestHeaders().Response = v.destination()
	}
	if v.ask != filter.ProcessingMode_NONE {
		a.ModeOverride = &filter.ProcessingMode{ResponseBodyMode: v.ask}
	}
	return v.stream.Send(a)
}

func (v *visit) destination() *extproc.CommonResponse {
	if v.fault == "no destination" {
		return &extproc.CommonResponse{}
	}
	return &extproc.CommonResponse{HeaderMutation: &extproc.HeaderMutation{SetHeaders: []*core.HeaderValueOption{
		{Header: &core.HeaderValue{Key: headerDestination, RawValue: []byte("10.0.0.1:8000")}},
	}}}
}

func (v *visit) requestBody(b *extproc.HttpBody) error {
	if v.fault == "refuse" && b.GetEndOfStream() {
		v.done = true
		return v.stream.Send(&answer{Response: &extproc.ProcessingResponse_ImmediateResponse{
			ImmediateResponse: &extproc.ImmediateResponse{Status: &typev3.HttpStatus{Code: typev3.StatusCode_TooManyRequests}},
		}})
	}
	if !v.duplex {
		return v.stream.Send(&answer{Response: &extproc.ProcessingResponse_RequestBody{RequestBody: &extproc.BodyResponse{Response: v.destination()}}})
	}
	if v.fault == "eager" {
		return v.sendBody(b.GetBody(), b.GetEndOfStream())
	}
	if !b.GetEndOfStream() {
		return nil
	}
	if v.fault != "disorder" {
		if err := v.sendHeaders(); err != nil {
			return err
		}
	}
	body := append([]byte(nil), v.req...)
	switch v.fault {
	case "corrupt":
		body[len(body)-1]++
	case "truncate":
		body = body[:len(body)-1]
	}
	return v.sendBody(body, true)
}

func (v *visit) sendBody(body []byte, end bool) error {
	for {
		n := min(len(body), 64<<10)
		a := &answer{Response: &extproc.ProcessingResponse_RequestBody{RequestBody: &extproc.BodyResponse{Response: streamed(body[:n], end && n == len(body))}}}
		if err := v.stream.Send(a); err != nil {
			return err
		}
		if body = body[n:]; len(body) == 0 {
			return nil
		}
	}
}

func streamed(b []byte, end bool) *extproc.CommonResponse {
	return &extproc.CommonResponse{BodyMutation: &extproc.BodyMutation{Mutation: &extproc.BodyMutation_StreamedResponse{
		StreamedResponse: &extproc.StreamedBodyResponse{Body: b, EndOfStream: end},
	}}}
}
