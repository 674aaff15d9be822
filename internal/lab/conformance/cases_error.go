package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

func errorCases() []Case {
	const (
		section  = protocol + ", Destination Endpoint"
		answered = "If the EPP did not communicate the server endpoint via these two methods, it MUST return an error as follows: ImmediateResponse with [503 or 429]."
	)
	return []Case{
		{"no-endpoints", Must, section, "ImmediateResponse with 503 (Service Unavailable) HTTP status code if there are no ready endpoints.",
			"POST and GET to a picker whose pool has no endpoints; 503", noEndpoints},
		{"model-absent", Must, section, answered, "POST of JSON without a model; a destination or an immediate response", modelAbsent},
		{"body-malformed", Must, section, answered, "POST whose body is not JSON; a destination or an immediate response", bodyMalformed},
		{"body-empty", Must, section, answered, "POST with a body of no bytes; a destination or an immediate response", bodyEmpty},
		{"body-huge", Must, section, answered, "POST of 12 MiB; a destination and the same content, or an immediate response", bodyHuge},
		{"client-errors", Should, "RFC 9110, Client Error 4xx", "The 4xx (Client Error) class of status code indicates that the client seems to have erred.",
			"bodies that are malformed, empty or lack a model; a destination or a status of 4xx", clientErrors},
		{"model-unknown", May, olderProtocol + ", Matching An InferenceModel",
			"The model name of a request MUST match the Spec.ModelName parameter of one of the InferenceModels referencing the InferencePool managed by the EPP. Otherwise, the EPP MUST return a 404 status code.",
			"POST that names a model without an endpoint; 404", modelUnknown},
	}
}

func noEndpoints(ctx context.Context, s *session) (string, error) {
	if s.empty == nil {
		return "", notApplicable("no picker with an empty pool was given")
	}
	if seen, err := s.refusedAt(ctx, s.empty, s.post("anybody there"), 503); err != nil {
		return seen, err
	}
	seen, err := s.refusedAt(ctx, s.empty, get("/health"), 503)
	if err != nil {
		err = fmt.Errorf("GET: %w", err)
	}
	return seen, err
}

func (s *session) onlyAnswered(ctx context.Context, r request) (string, error) {
	seen, _, err := s.answered(ctx, r)
	return seen, err
}

const (
	lacksModel = `{"prompt":"x","max_tokens":1}`
	malformed  = `{"model": "m", "prompt": `
)

func modelAbsent(ctx context.Context, s *session) (string, error) {
	return s.onlyAnswered(ctx, s.raw(lacksModel))
}

func bodyMalformed(ctx context.Context, s *session) (string, error) {
	return s.onlyAnswered(ctx, s.raw(malformed))
}

func bodyEmpty(ctx context.Context, s *session) (string, error) {
	return s.onlyAnswered(ctx, s.raw(""))
}

func bodyHuge(ctx context.Context, s *session) (string, error) {
	r := s.post(words(12 << 20)).cut(64 << 10)
	a, err := s.finish(ctx, r)
	switch {
	case err != nil:
		return "", err
	case a.immediate != nil:
		return a.refusal(), nil
	}
	if _, err := a.destinations(s.known); err != nil {
		return "", err
	}
	return "placed, the same content", sameContent(strings.Join(r.chunks, ""), a.body)
}

func clientErrors(ctx context.Context, s *session) (string, error) {
	for _, body := range []string{lacksModel, malformed, ""} {
		seen, code, err := s.answered(ctx, s.raw(body))
		if err != nil {
			return "", err
		}
		if code >= 500 || code > 0 && code < 400 {
			return "", errors.New(seen + " for " + map[string]string{lacksModel: "a body without a model", malformed: "malformed JSON", "": "an empty body"}[body])
		}
	}
	return "placed, or 4xx", nil
}

func modelUnknown(ctx context.Context, s *session) (string, error) {
	return s.refused(ctx, s.raw(`{"model":"a-model-without-an-endpoint","prompt":"x"}`), 404)
}
