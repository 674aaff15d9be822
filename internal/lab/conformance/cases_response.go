package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

func responseCases() []Case {
	const (
		must      = "Unless observability_mode is true, the server must send back a matching message or close the stream."
		streaming = "Streaming mode enables full-duplex communication between the Gateway (Envoy), EPP, and model servers, allowing real-time token-by-token response delivery for AI inference workloads."
		section   = protocol + ", Destination Endpoint Served"
	)
	return []Case{
		{"response-body", Must, bodyModes, "The server needs to send StreamedBodyResponse to the client in the body response.",
			"an SSE response in pieces that cut events; the same bytes", responseBody},
		{"response-json", Must, bodyModes, "The server needs to send StreamedBodyResponse to the client in the body response.",
			"a JSON response in two pieces; the same bytes", responseJSON},
		{"response-tokens", Must, protocol + ", Proposal", streaming, "an SSE response; each event comes back before the next one is sent", responseTokens},
		{"response-headers-only", Must, extProc, "HTTP response headers: " + must, "a response that ends with its headers; an answer to them", responseHeadersOnly},
		{"response-trailers", Must, extProc, "HTTP response trailers: " + must, "a response that ends with trailers; the same bytes, an answer to the trailers", responseTrailers},
		{"response-error", Must, extProc, "HTTP response body: " + must, "status 500 with a body of text; the same bytes", responseError},
		{"response-served", Must, section,
			"For each HTTP response, the data plane MUST communicate to the EPP the endpoint that served the request.",
			"a response with the metadata of the chosen endpoint, of another one and of none; the same bytes each time", responseServed},
		{"response-served-header", May, practice + ": conformance tests of the Gateway API Inference Extension", "The picker reports the serving endpoint in the response header x-conformance-test-served-endpoint.",
			"GET, a response without a body, with the metadata; the header has the endpoint", responseServedHeader},
	}
}

var events = []string{
	"data: {\"id\":\"1\",\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n",
	"data: {\"id\":\"1\",\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\"b\"}]}\n\n",
	"data: [DONE]\n\n",
}

func sse(chunks ...string) reply {
	return reply{status: 200, contentType: "text/event-stream", chunks: chunks}
}

// streaming is a request for a streamed answer.
func (s *session) streaming() request {
	return s.raw(fmt.Sprintf(`{"model":%q,"prompt":"hello","max_tokens":2,"stream":true}`, s.Model))
}

// responds places a request, sends a response and checks that its body is forwarded unchanged. If
// the picker does not complete the request's body, a request without a body takes its place.
func (s *session) responds(ctx context.Context, q request, r reply) (*returned, error) {
	half, cancel := context.WithTimeout(ctx, s.Timeout/2)
	defer cancel()
	a, err := s.passes(half, q)
	if err != nil {
		if a, err = s.placed(ctx, get("/health"), s.known); err != nil {
			return nil, fmt.Errorf("request: %w", err)
		}
	}
	out, err := a.respond(r)
	if err != nil {
		return out, err
	}
	if want := strings.Join(r.chunks, ""); out.body.String() != want {
		return out, fmt.Errorf("%d bytes of response were forwarded as %d", len(want), out.body.Len())
	}
	return out, nil
}

func responseBody(ctx context.Context, s *session) (string, error) {
	whole := strings.Join(events, "")
	_, err := s.responds(ctx, s.streaming(), sse(whole[:10], whole[10:90], whole[90:91], whole[91:]))
	return "the same bytes", err
}

const completion = `{"id":"1","object":"text_completion","choices":[{"index":0,"text":"a","finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`

func responseJSON(ctx context.Context, s *session) (string, error) {
	_, err := s.responds(ctx, s.post("hello"), reply{status: 200, contentType: "application/json", chunks: []string{completion[:50], completion[50:]}})
	return "the same bytes", err
}

func responseTokens(ctx context.Context, s *session) (string, error) {
	r := sse(events...)
	r.stepwise = true
	_, err := s.responds(ctx, s.streaming(), r)
	return "each event at once", err
}

func responseHeadersOnly(ctx context.Context, s *session) (string, error) {
	_, err := s.responds(ctx, s.post("hello"), reply{status: 204, contentType: "text/plain"})
	return "answered", err
}

func responseTrailers(ctx context.Context, s *session) (string, error) {
	r := sse(events...)
	r.trailers = true
	_, err := s.responds(ctx, s.streaming(), r)
	return "the same bytes, an answer to the trailers", err
}

func responseError(ctx context.Context, s *session) (string, error) {
	_, err := s.responds(ctx, s.post("hello"), reply{status: 500, contentType: "text/plain", chunks: []string{"Internal ", "Server Error"}})
	return "the same bytes", err
}

func responseServed(ctx context.Context, s *session) (string, error) {
	for _, at := range append([]string{""}, s.Endpoints...) {
		r := sse(events...)
		r.servedBy = at
		if _, err := s.responds(ctx, s.streaming(), r); err != nil {
			return "", err
		}
	}
	return "the same bytes", nil
}

func responseServedHeader(ctx context.Context, s *session) (string, error) {
	const header = "x-conformance-test-served-endpoint"
	a, err := s.placed(ctx, get("/health"), s.known)
	if err != nil {
		return "", err
	}
	out, err := a.respond(reply{status: 204, contentType: "text/plain", servedBy: s.Endpoints[0]})
	switch {
	case err != nil:
		return "", err
	case out.set[header] == "":
		return "", notApplicable("the picker does not set the header")
	case out.set[header] != s.Endpoints[0]:
		return "", errors.New("the header has " + out.set[header])
	}
	return "the header has the endpoint", nil
}
