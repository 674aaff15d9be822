package extproc

import (
	"encoding/json"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Replies without changes. They are shared by all streams and read-only.
var (
	continueRequestHeaders = wire.Fixed(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extprocv3.HeadersResponse{}}})
	continueRequestBody = wire.Fixed(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
		RequestBody: &extprocv3.BodyResponse{}}})
	continueRequestTrailers = wire.Fixed(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{
		RequestTrailers: &extprocv3.TrailersResponse{}}})
	continueResponseHeaders = wire.Fixed(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{
		ResponseHeaders: &extprocv3.HeadersResponse{}}})
	continueResponseBody = wire.Fixed(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{
		ResponseBody: &extprocv3.BodyResponse{}}})
	continueResponseTrailers = wire.Fixed(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{
		ResponseTrailers: &extprocv3.TrailersResponse{}}})
)

// clearRequestBody drops a held chunk whose bytes were sent with the first one.
var clearRequestBody = wire.Fixed(requestBodyReply(&extprocv3.BodyMutation{
	Mutation: &extprocv3.BodyMutation_ClearBody{ClearBody: true}}))

// replaceChunk replies to a STREAMED chunk with other bytes.
func replaceChunk(body []byte) *wire.Outbound {
	return wire.Fixed(requestBodyReply(&extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: body}}))
}

func requestBodyReply(m *extprocv3.BodyMutation) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
		RequestBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: m}}}}
}

// clearResponseBody drops a chunk of a response.
var clearResponseBody = wire.Fixed(responseBodyReply(&extprocv3.BodyMutation{
	Mutation: &extprocv3.BodyMutation_ClearBody{ClearBody: true}}))

// replaceResponse replies to a response chunk with other bytes.
func replaceResponse(body []byte) *wire.Outbound {
	return wire.Fixed(responseBodyReply(&extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: body}}))
}

func responseBodyReply(m *extprocv3.BodyMutation) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{
		ResponseBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: m}}}}
}

// errorBody is the error object of the OpenAI API.
type errorBody struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	} `json:"error"`
}

// errorDocument returns the body of a rejection.
func errorDocument(e *request.Error) []byte {
	var b errorBody
	b.Error.Message, b.Error.Type, b.Error.Code = e.Message, refusalOf(e.Reason).kind, e.Reason.String()
	body, err := json.Marshal(b)
	if err != nil { // marshalling strings and a nil pointer cannot fail
		return nil
	}
	return body
}

// immediate builds the reply that ends the request.
func immediate(e *request.Error) *wire.Outbound {
	ref, body := refusalOf(e.Reason), errorDocument(e)
	headers := []*corev3.HeaderValueOption{setHeader(wire.HeaderContentType, wire.ContentTypeJSON), setHeader(wire.HeaderDropReason, ref.drop)}
	if e.Reason == request.ReasonNoEndpoints { // engines may be starting from zero
		headers = append(headers, setHeader(wire.HeaderRetryAfter, "5"))
	}
	return wire.Fixed(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode(ref.status)},
			Headers: &extprocv3.HeaderMutation{SetHeaders: headers},
			Body:    body,
			Details: "grapevine_" + e.Reason.String(),
		},
	}})
}

// document builds a successful response in place of the engine.
func document(status int, body []byte) *wire.Outbound {
	return wire.Fixed(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode(status)},
			Headers: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{setHeader(wire.HeaderContentType, wire.ContentTypeJSON)}},
			Body:    body,
			Details: "grapevine_answered",
		},
	}})
}

// setHeader sets a header and replaces the client's values.
func setHeader(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}
