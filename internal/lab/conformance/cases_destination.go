package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

func destinationCases() []Case {
	const section = protocol + ", Destination Endpoint"
	return []Case{
		{"destination-header", Must, section,
			"For each HTTP request, the EPP MUST communicate to the data plane one or more selected model server endpoints via: 1. Setting the x-gateway-destination-endpoint HTTP header to one or more selected endpoints.",
			"POST in full duplex; the answer to the headers sets the header", destinationHeader},
		{"destination-metadata", Must, section,
			"The metadata entry for the picked endpoints MUST be wrapped with an outer key (which represents the metadata namespace) with a default of envoy.lb. The primary endpoint MUST be set using the key x-gateway-destination-endpoint.",
			"POST in full duplex; the answer to the headers has the metadata", destinationMetadata},
		{"destination-agree", Must, section,
			"The EPP MUST not set two different values in the header and the inner response metadata value.",
			"20 POSTs; header and metadata are equal", destinationAgree},
		{"destination-format", Must, section,
			"The value of the header or metadata entry MUST contain at least one endpoint in <ip:port> format or multiple endpoints in <ip:port>,<ip:port>,... format.",
			"POST; each part of the header is ip:port", destinationFormat},
		{"destination-pool", Must, protocol + ", Endpoint Subset",
			"If the key x-gateway-destination-endpoint-subset is not set, then the EPP MUST select from the set defined by the InferencePool selector.",
			"20 POSTs; each destination is an endpoint of the pool", destinationPool},
		{"destination-without-body", Must, section,
			"For each HTTP request, the EPP MUST communicate to the data plane one or more selected model server endpoints.",
			"GET that ends with its headers; a destination", destinationWithoutBody},
		{"destination-spoofed", Must, section,
			"For each HTTP request, the EPP MUST communicate to the data plane one or more selected model server endpoints via: 1. Setting the x-gateway-destination-endpoint HTTP header.",
			"POST whose client sent the header itself; the picker replaces it", destinationSpoofed},
		{"destination-any-path", Should, section,
			"For each HTTP request, the EPP MUST communicate to the data plane one or more selected model server endpoints.",
			"POST of JSON without a model to a path that is not part of an inference API; a destination", destinationAnyPath},
		{"destination-list", May, section,
			"If retry is configured, the proxy will go sequentially down the list until one valid endpoint is found.",
			"POST; if the picker names several endpoints, they differ and belong to the pool", destinationList},
		{"fallback-key", May, olderProtocol + ", Destination endpoint fallback",
			"A single fallback endpoint CAN be set using the key x-gateway-destination-endpoint-fallback in the same metadata namespace as one used for x-gateway-destination-endpoint.",
			"POST; if the metadata has the key, it is another endpoint of the pool", fallbackKey},
	}
}

// accepted sends a request and expects anything but an immediate response.
func (s *session) accepted(ctx context.Context, r request) (*answer, error) {
	a, err := s.ask(ctx, r)
	if err == nil && a.immediate != nil {
		err = fmt.Errorf("%s instead of a destination", a.refusal())
	}
	return a, err
}

func destinationHeader(ctx context.Context, s *session) (string, error) {
	a, err := s.accepted(ctx, s.post("where to"))
	if err == nil && a.set[destination] == "" {
		err = errors.New("the answer to the headers does not set the header")
	}
	return "the header is set", err
}

func destinationMetadata(ctx context.Context, s *session) (string, error) {
	a, err := s.accepted(ctx, s.post("where to"))
	if err != nil {
		return "", err
	}
	if v, ok := a.metadata[destination].(string); !ok || v == "" {
		return "", fmt.Errorf("metadata %s of the answer to the headers has %v", namespaceLB, a.metadata[destination])
	}
	return "the metadata is set", nil
}

func destinationAgree(ctx context.Context, s *session) (string, error) {
	for range 20 {
		a, err := s.accepted(ctx, s.post("where to"))
		if err != nil {
			return "", err
		}
		header, inHeader := a.set[destination]
		meta, inMetadata := a.metadata[destination].(string)
		if inHeader && inMetadata && header != meta {
			return "", fmt.Errorf("the header is %q, the metadata %q", header, meta)
		}
		if !inHeader && !inMetadata {
			return "", errors.New("neither header nor metadata")
		}
	}
	return "20 of 20 are equal", nil
}

func destinationFormat(ctx context.Context, s *session) (string, error) {
	a, err := s.accepted(ctx, s.post("where to"))
	if err != nil {
		return "", err
	}
	for part := range strings.SplitSeq(a.set[destination], ",") {
		if _, err := netip.ParseAddrPort(strings.TrimSpace(part)); err != nil {
			return "", fmt.Errorf("%q is not ip:port", part)
		}
	}
	return "ip:port", nil
}

func destinationPool(ctx context.Context, s *session) (string, error) {
	for i := range 20 {
		if _, err := s.placed(ctx, s.post(fmt.Sprint("number ", i)), s.known); err != nil {
			return "", err
		}
	}
	return "20 of 20 are in the pool", nil
}

func destinationWithoutBody(ctx context.Context, s *session) (string, error) {
	_, err := s.placed(ctx, get("/health"), s.known)
	return "placed", err
}

func destinationSpoofed(ctx context.Context, s *session) (string, error) {
	r := s.post("elsewhere")
	r.headers = map[string]string{destination: "192.0.2.1:8000"}
	a, err := s.placed(ctx, r, s.known)
	if err == nil && slices.Contains(a.kept, destination) {
		err = errors.New("the mutation leaves the client's value in place")
	}
	return "replaced", err
}

func destinationAnyPath(ctx context.Context, s *session) (string, error) {
	r := s.raw(`{"x":1}`)
	r.path = "/some/other/api"
	_, err := s.placed(ctx, r, s.known)
	return "placed", err
}

func destinationList(ctx context.Context, s *session) (string, error) {
	a, err := s.ask(ctx, s.post("and then"))
	if err != nil {
		return "", err
	}
	list, err := a.destinations(s.known)
	if err != nil {
		return "", err
	}
	if len(list) == 1 {
		return "", notApplicable("the picker names one endpoint")
	}
	unique := slices.Clone(list)
	slices.SortFunc(unique, netip.AddrPort.Compare)
	if len(slices.Compact(unique)) != len(list) {
		return "", fmt.Errorf("%v names an endpoint twice", list)
	}
	return fmt.Sprintf("%d endpoints", len(list)), nil
}

func fallbackKey(ctx context.Context, s *session) (string, error) {
	a, err := s.placed(ctx, s.post("and else"), s.known)
	if err != nil {
		return "", err
	}
	value, ok := a.metadata[fallback].(string)
	if !ok {
		return "", notApplicable("the picker does not set the key")
	}
	at, err := netip.ParseAddrPort(value)
	if err != nil || !slices.Contains(s.known, at) || value == a.set[destination] {
		return "", fmt.Errorf("the fallback of %q is %q", a.set[destination], value)
	}
	return "another endpoint of the pool", nil
}
