package conformance

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
)

func subsetCases() []Case {
	const (
		section = protocol + ", Endpoint Subset"
		only    = "If the key x-gateway-destination-endpoint-subset is set, the EPP MUST only select endpoints from the specified list."
		none    = "If none of the endpoints in the list is eligible or the list is empty, then the EPP MUST return a ImmediateResponse with 503 (Service Unavailable) HTTP status code."
		absent  = "If the key x-gateway-destination-endpoint-subset is not set, then the EPP MUST select from the set defined by the InferencePool selector."
	)
	return []Case{
		{"subset-one", Must, section, only, "each endpoint alone as the subset; it is the destination", subsetOne},
		{"subset-mixed", Must, section, only, "10 requests with two endpoints and an unknown address as the subset; the destination is one of the two", subsetMixed},
		{"subset-without-body", Must, section, only, "GET with each endpoint alone as the subset; it is the destination", subsetWithoutBody},
		{"subset-empty", Must, section, none, "an empty list; 503", subsetEmpty},
		{"subset-unknown", Must, section, none, "a list of an unknown address; 503", subsetUnknown},
		{"subset-port", Must, section, none, "a list of an endpoint's address with another port; 503", subsetPort},
		{"subset-malformed", Must, section, none, "a list of texts that are not ip:port; 503", subsetMalformed},
		{"subset-wrong-type", Should, section, only, "a number, and a list of numbers, in place of the list; no destination, since the key is set", subsetWrongType},
		{"subset-other-metadata", Must, section, absent, "other namespaces and keys name an unknown address; the destination is in the pool", subsetOtherMetadata},
		{"subset-string", May, practice + ": proxies that fill the metadata from a header", only, "one string of ip:port separated by commas; the destination is within", subsetString},
		{"subset-address", May, practice + ": conformance tests of the Gateway API Inference Extension", only, "a list of one address without a port; the destination has that address", subsetAddress},
	}
}

// eachWithin checks that a request is placed at each endpoint when the subset names it alone.
func (s *session) eachWithin(ctx context.Context, r request) (string, error) {
	for i, e := range s.Endpoints {
		if _, err := s.placed(ctx, r.within([]any{e}), s.known[i:i+1]); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d of %[1]d within", len(s.Endpoints)), nil
}

func subsetOne(ctx context.Context, s *session) (string, error) {
	return s.eachWithin(ctx, s.post("within"))
}

func subsetMixed(ctx context.Context, s *session) (string, error) {
	for range 10 {
		if _, err := s.placed(ctx, s.post("within two").within([]any{s.Endpoints[0], s.Endpoints[1], "192.0.2.1:1"}), s.known[:2]); err != nil {
			return "", err
		}
	}
	return "10 of 10 within", nil
}

func subsetWithoutBody(ctx context.Context, s *session) (string, error) {
	return s.eachWithin(ctx, get("/health"))
}

func subsetEmpty(ctx context.Context, s *session) (string, error) {
	return s.refused(ctx, s.post("nowhere").within([]any{}), 503)
}

func subsetUnknown(ctx context.Context, s *session) (string, error) {
	return s.refused(ctx, s.post("not of this pool").within([]any{"192.0.2.1:8000"}), 503)
}

func subsetPort(ctx context.Context, s *session) (string, error) {
	return s.refused(ctx, s.post("another port").within([]any{netip.AddrPortFrom(s.known[0].Addr(), 1).String()}), 503)
}

func subsetMalformed(ctx context.Context, s *session) (string, error) {
	return s.refused(ctx, s.post("malformed").within([]any{"not an address", "", "999.1.1.1:x", "http://"}), 503)
}

func subsetWrongType(ctx context.Context, s *session) (string, error) {
	for _, value := range []any{7, []any{1, 2}} {
		a, err := s.ask(ctx, s.post("malformed").within(value))
		if err != nil {
			return "", err
		}
		if a.immediate == nil {
			return "", fmt.Errorf("%v was taken as no subset", value)
		}
	}
	return "refused", nil
}

func subsetOtherMetadata(ctx context.Context, s *session) (string, error) {
	r := s.post("with metadata")
	r.metadata = map[string]map[string]any{
		namespaceIn:                     {"another-key": []any{"192.0.2.1:1"}},
		"envoy.filters.http.jwt_authn":  {"sub": "x"},
		namespaceLB:                     {destination: "192.0.2.1:1", subsetKey: []any{"192.0.2.1:1"}},
		"envoy.lb.subset_hint.of.other": {subsetKey: []any{"192.0.2.1:1"}},
	}
	_, err := s.placed(ctx, r, s.known)
	return "placed in the pool", err
}

func subsetString(ctx context.Context, s *session) (string, error) {
	for i, e := range s.Endpoints {
		if _, err := s.placed(ctx, s.post("within").within(e+", 192.0.2.1:1"), s.known[i:i+1]); err != nil {
			return "", err
		}
	}
	return "within", nil
}

func subsetAddress(ctx context.Context, s *session) (string, error) {
	for _, e := range s.known {
		same := slices.DeleteFunc(slices.Clone(s.known), func(a netip.AddrPort) bool { return a.Addr() != e.Addr() })
		if len(same) == len(s.known) {
			return "", notApplicable("all endpoints have one address")
		}
		if _, err := s.placed(ctx, s.post("within").within([]any{e.Addr().String()}), same); err != nil {
			return "", err
		}
	}
	return "within", nil
}
