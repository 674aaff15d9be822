package extproc

import (
	"encoding/json"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// Answers that change nothing. They are shared by all streams and read only.
var (
	continueRequestHeaders = fixed(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extprocv3.HeadersResponse{}}})
	continueRequestBody = fixed(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
		RequestBody: &extprocv3.BodyResponse{}}})
	continueRequestTrailers = fixed(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{
		RequestTrailers: &extprocv3.TrailersResponse{}}})
	continueResponseHeaders = fixed(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{
		ResponseHeaders: &extprocv3.HeadersResponse{}}})
	continueResponseBody = fixed(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{
		ResponseBody: &extprocv3.BodyResponse{}}})
	continueResponseTrailers = fixed(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{
		ResponseTrailers: &extprocv3.TrailersResponse{}}})
)

// clearRequestBody drops a held chunk whose bytes were sent with the first one.
var clearRequestBody = fixed(requestBodyReply(&extprocv3.BodyMutation{
	Mutation: &extprocv3.BodyMutation_ClearBody{ClearBody: true}}))

// replaceChunk answers a STREAMED chunk with other bytes.
func replaceChunk(body []byte) *outbound {
	return fixed(requestBodyReply(&extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: body}}))
}

func requestBodyReply(m *extprocv3.BodyMutation) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
		RequestBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: m}}}}
}

// clearResponseBody drops a piece of an answer.
var clearResponseBody = fixed(responseBodyReply(&extprocv3.BodyMutation{
	Mutation: &extprocv3.BodyMutation_ClearBody{ClearBody: true}}))

// replaceResponse answers a piece of an answer with other bytes.
func replaceResponse(body []byte) *outbound {
	return fixed(responseBodyReply(&extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: body}}))
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

// errorDocument is the body of a refusal.
func errorDocument(e *request.Error) []byte {
	var b errorBody
	b.Error.Message, b.Error.Type, b.Error.Code = e.Message, refusalOf(e.Reason).kind, e.Reason.String()
	body, err := json.Marshal(b)
	if err != nil { // strings and a nil pointer always marshal
		return nil
	}
	return body
}

// immediate builds the answer that ends the request.
func immediate(e *request.Error) *outbound {
	ref, body := refusalOf(e.Reason), errorDocument(e)
	headers := []*corev3.HeaderValueOption{setHeader(headerContentType, contentTypeJSON), setHeader(headerDropReason, ref.drop)}
	if e.Reason == request.ReasonNoEndpoints { // engines may be starting, from none at all
		headers = append(headers, setHeader(headerRetryAfter, "5"))
	}
	return fixed(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode(ref.status)},
			Headers: &extprocv3.HeaderMutation{SetHeaders: headers},
			Body:    body,
			Details: "grapevine_" + e.Reason.String(),
		},
	}})
}

// document builds an answer in the engine's place that is no refusal.
func document(status int, body []byte) *outbound {
	return fixed(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode(status)},
			Headers: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{setHeader(headerContentType, contentTypeJSON)}},
			Body:    body,
			Details: "grapevine_answered",
		},
	}})
}

// setHeader sets a header, replacing what the client sent under its name.
func setHeader(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}
