package sidecar

import (
	"net/http"
	"strings"

	"github.com/grapevine-epp/grapevine/pd"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Headers by which a picker names endpoints for the legs of a request. They are
// removed from what engines get.
const (
	headerPrefiller = request.HeaderPrefiller
	headerEncoders  = request.HeaderEncoders
)

var pickersHeaders = canonical(request.RoutingHeaders())

// canonical returns names as the keys of an http.Header are.
func canonical(names []string) []string {
	for i := range names {
		names[i] = http.CanonicalHeaderKey(names[i])
	}
	return names
}

// foreign are headers by which clients could set an engine's hand-over fields, as net/http
// writes them.
var foreign = []string{
	"X-Override-Bootstrap-Host", "X-Override-Bootstrap-Port", "X-Override-Bootstrap-Room", "X-Override-Routed-Dp-Rank",
	"X-Override-Disagg-Prefill-Dp-Rank", "X-Override-Rid",
}

// Targets decides whether the addresses that a request names may be called.
type Targets interface {
	// Allowed reports whether the legs of a request with these headers may go to
	// list. It is called before any leg is made.
	Allowed(h http.Header, list []string) bool
}

// Listed allows the addresses in it, host and port.
type Listed map[string]bool

// Allowed implements Targets.
func (l Listed) Allowed(_ http.Header, list []string) bool {
	for _, t := range list {
		if !l[t] {
			return false
		}
	}
	return true
}

// Signed allows what a picker has signed.
type Signed struct{ *pd.Verifier }

// Allowed implements Targets.
func (s Signed) Allowed(h http.Header, _ []string) bool {
	return s.Verify(h.Get(request.HeaderSignature), strings.Join(h.Values(headerPrefiller), ","), strings.Join(h.Values(headerEncoders), ",")) == nil
}

// targets returns the addresses of a header: several lines, or one split at commas.
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
