package bench

import (
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// headerDestination is the header in which a picker names its choice.
const headerDestination = "x-gateway-destination-endpoint"

// Short names of long names in Envoy's protocol.
type (
	message = extproc.ProcessingRequest
	answer  = extproc.ProcessingResponse
)

// kind is the kind of message that an answer belongs to.
type kind int

const (
	other kind = iota
	toRequestHeaders
	toRequestBody
	toResponseHeaders
	toResponseBody
	immediate
)

var kindNames = [...]string{"something else", "an answer to request headers", "an answer to a request body",
	"an answer to response headers", "an answer to a response body", "an immediate response"}

func (k kind) String() string { return kindNames[k] }

// direction is one half of an HTTP exchange: the request or the response.
type direction struct {
	headers, body kind
	chunk         func(b []byte, end bool) *message
}

var (
	requestSide  = direction{toRequestHeaders, toRequestBody, requestChunk}
	responseSide = direction{toResponseHeaders, toResponseBody, responseChunk}
)

func requestChunk(b []byte, end bool) *message {
	return &message{Request: &extproc.ProcessingRequest_RequestBody{RequestBody: &extproc.HttpBody{Body: b, EndOfStream: end}}}
}

func responseChunk(b []byte, end bool) *message {
	return &message{Request: &extproc.ProcessingRequest_ResponseBody{ResponseBody: &extproc.HttpBody{Body: b, EndOfStream: end}}}
}

// unpack returns the kind of the answer, and its common part if it has one.
func unpack(a *answer) (kind, *extproc.CommonResponse) {
	switch r := a.GetResponse().(type) {
	case *extproc.ProcessingResponse_RequestHeaders:
		return toRequestHeaders, r.RequestHeaders.GetResponse()
	case *extproc.ProcessingResponse_RequestBody:
		return toRequestBody, r.RequestBody.GetResponse()
	case *extproc.ProcessingResponse_ResponseHeaders:
		return toResponseHeaders, r.ResponseHeaders.GetResponse()
	case *extproc.ProcessingResponse_ResponseBody:
		return toResponseBody, r.ResponseBody.GetResponse()
	case *extproc.ProcessingResponse_ImmediateResponse:
		return immediate, nil
	}
	return other, nil
}

// destination returns the destination in the answer, or "".
func destination(c *extproc.CommonResponse) string {
	for _, h := range c.GetHeaderMutation().GetSetHeaders() {
		if h.GetHeader().GetKey() == headerDestination {
			return string(h.GetHeader().GetRawValue()) + h.GetHeader().GetValue()
		}
	}
	return ""
}

// requestHeaders is the first message of a stream, with the headers that Envoy
// sends for a chat request of a client on the same machine.
func requestHeaders(mode Mode, n uint64, size int) *message {
	config := &extproc.ProtocolConfiguration{
		RequestBodyMode:  filter.ProcessingMode_FULL_DUPLEX_STREAMED,
		ResponseBodyMode: filter.ProcessingMode_FULL_DUPLEX_STREAMED,
	}
	if mode == Buffered {
		config.RequestBodyMode = filter.ProcessingMode_BUFFERED
		config.ResponseBodyMode = filter.ProcessingMode_NONE
	}
	headers := headerMap(
		":method", "POST",
		":scheme", "http",
		":authority", "gateway.example",
		":path", "/v1/chat/completions",
		"user-agent", "OpenAI/Python 1.99.0",
		"accept", "application/json",
		"accept-encoding", "gzip, deflate",
		"authorization", "Bearer none",
		"content-type", "application/json",
		"content-length", strconv.Itoa(size),
		"x-forwarded-proto", "http",
		"x-forwarded-for", "127.0.0.1",
		"x-request-id", requestID(n),
	)
	return &message{
		Request:        &extproc.ProcessingRequest_RequestHeaders{RequestHeaders: &extproc.HttpHeaders{Headers: headers}},
		ProtocolConfig: config,
	}
}

func responseHeaders() *message {
	headers := headerMap(
		":status", "200",
		"content-type", "text/event-stream; charset=utf-8",
		"server", "uvicorn",
		"x-envoy-upstream-service-time", "12",
	)
	return &message{Request: &extproc.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extproc.HttpHeaders{Headers: headers}}}
}

func headerMap(keysAndValues ...string) *core.HeaderMap {
	m := &core.HeaderMap{Headers: make([]*core.HeaderValue, 0, len(keysAndValues)/2)}
	for i := 0; i < len(keysAndValues); i += 2 {
		m.Headers = append(m.Headers, &core.HeaderValue{Key: keysAndValues[i], RawValue: []byte(keysAndValues[i+1])})
	}
	return m
}

// requestID has the shape of a UUID and counts.
func requestID(n uint64) string {
	id := []byte("00000000-0000-4000-8000-000000000000")
	for i := len(id) - 1; n > 0 && id[i] != '-'; i-- {
		id[i] = "0123456789abcdef"[n&15]
		n >>= 4
	}
	return string(id)
}
