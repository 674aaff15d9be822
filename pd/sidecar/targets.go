package sidecar

import (
	"net/http"
	"slices"
	"strings"

	"github.com/grapevine-epp/grapevine/pd/signed"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Headers by which a picker names endpoints for the legs. They are removed from requests to
// engines.
const (
	headerPrefiller = request.HeaderPrefiller
	headerEncoders  = request.HeaderEncoders
)

var pickersHeaders = canonical(request.RoutingHeaders())

// canonical returns names in the form of http.Header keys.
func canonical(names []string) []string {
	for i := range names {
		names[i] = http.CanonicalHeaderKey(names[i])
	}
	return names
}

// foreign are headers by which clients could set an engine's KV transfer fields, in net/http's
// spelling.
var foreign = []string{
	"X-Override-Bootstrap-Host", "X-Override-Bootstrap-Port", "X-Override-Bootstrap-Room", "X-Override-Routed-Dp-Rank",
	"X-Override-Disagg-Prefill-Dp-Rank", "X-Override-Rid",
}

// Targets decides whether the addresses named by a request may be used.
type Targets interface {
	// Allowed returns the addresses at which a request with these headers may have its prompt
	// computed and its media encoded, in order. It is called before any leg is sent, and does not
	// change its arguments.
	Allowed(h http.Header, prefill, encode []string) (p, e []string)
	// Continuation returns the addresses at which a stream of a request with these headers may be
	// continued, in order.
	Continuation(h http.Header, list []string) []string
	// Source reports whether engines may fetch from an address.
	Source(address string) bool
}

// Listed allows the listed addresses, host and port, for legs of their roles only. A decode
// engine's port must not compute prompts for others.
type Listed map[string]endpoint.Role

// AnyRole is the role of a listed address with unknown role.
const AnyRole = endpoint.RolePrefill | endpoint.RoleDecode | endpoint.RoleEncode

// Allowed implements Targets.
func (l Listed) Allowed(_ http.Header, prefill, encode []string) (p, e []string) {
	return l.only(prefill, endpoint.RolePrefill), l.only(encode, endpoint.RoleEncode)
}

// only returns the addresses of a list that are listed with a role.
func (l Listed) only(list []string, role endpoint.Role) []string {
	foreign := func(t string) bool { return l[t]&role == 0 }
	if !slices.ContainsFunc(list, foreign) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), foreign)
}

// Continuation implements Targets.
func (l Listed) Continuation(_ http.Header, list []string) []string {
	return l.only(list, endpoint.RoleDecode)
}

// Source implements Targets. Engines of every role keep computed blocks.
func (l Listed) Source(address string) bool { return l[address] != 0 }

// Signed allows targets signed by a picker and, unless Listed is nil, only if they are listed too.
type Signed struct {
	*signed.Verifier
	Listed Listed
}

// Allowed implements Targets.
func (s Signed) Allowed(h http.Header, prefill, encode []string) (p, e []string) {
	switch {
	case s.Verify(h.Get(request.HeaderSignature), strings.Join(h.Values(headerPrefiller), ","), strings.Join(h.Values(headerEncoders), ",")) != nil:
		return nil, nil
	case s.Listed == nil:
		return prefill, encode
	}
	return s.Listed.Allowed(h, prefill, encode)
}

// Continuation implements Targets.
func (s Signed) Continuation(h http.Header, list []string) []string {
	switch {
	case s.VerifyContinuation(h.Get(request.HeaderContinuationSignature), strings.Join(h.Values(request.HeaderContinuation), ",")) != nil:
		return nil
	case s.Listed == nil:
		return list
	}
	return s.Listed.Continuation(h, list)
}

// Source implements Targets. Signatures do not cover sources.
func (s Signed) Source(address string) bool { return s.Listed.Source(address) }

// targets returns the addresses in a header with several lines or a comma-separated list.
func targets(h http.Header, name string) (list []string) {
	for _, line := range h.Values(name) {
		for part := range strings.SplitSeq(line, ",") {
			part = strings.TrimSpace(part)
			part = strings.TrimPrefix(strings.TrimPrefix(part, "http://"), "https://")
			if part != "" {
				list = append(list, part)
			}
		}
	}
	return list
}
