package server

import (
	"fmt"
	"slices"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// knownRoles are the values of the role label.
var knownRoles = []string{"prefill", "decode", "both", "prefill-decode", "encode", "encode-prefill", "encode-prefill-decode"}

// noDecode describes a pool in which no endpoint can answer requests, because all are labelled for
// prefill or encoding. It returns "" for other pools, and for empty ones.
func noDecode(eps []*endpoint.Endpoint) string {
	if len(eps) == 0 || slices.ContainsFunc(eps, func(ep *endpoint.Endpoint) bool { return ep.Role&endpoint.RoleDecode != 0 }) {
		return ""
	}
	return fmt.Sprintf("no endpoint decodes: the label %s of all %d endpoints is for prefill or encoding, so every request gets 503", endpoint.LabelRole, len(eps))
}

// unknownRole describes endpoints whose role label is misspelt or empty. They serve whole requests.
func unknownRole(eps []*endpoint.Endpoint) string {
	n, first := 0, ""
	for _, ep := range eps {
		role, has := ep.Label(endpoint.LabelRole)
		if !has || slices.Contains(knownRoles, role) {
			continue
		}
		if n++; n == 1 {
			first = fmt.Sprintf("%s has the unknown role %q in the label %s, so it serves whole requests", ep.Address, role, endpoint.LabelRole)
		}
	}
	if n > 1 {
		first = fmt.Sprintf("%s; %d other endpoints have unknown roles", first, n-1)
	}
	return first
}

// noPrefill describes a pool with endpoints labelled for decode and none labelled for prefill.
func noPrefill(eps []*endpoint.Endpoint) string {
	n := 0
	for _, ep := range eps {
		if ep.Role&endpoint.RolePrefill != 0 {
			return ""
		}
		if role, _ := ep.Label(endpoint.LabelRole); role == "decode" {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("no endpoint computes prompts for others: %d have the label %s=decode, and none has prefill or both", n, endpoint.LabelRole)
}
