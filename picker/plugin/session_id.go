package plugin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/request"
)

type sessionIDParams struct {
	HeaderName string `json:"headerName,omitempty"`
	CookieName string `json:"cookieName,omitempty"`
	LRUSize    int    `json:"lruSize,omitempty"`
	TTL        string `json:"ttl,omitempty"`
}

func newSessionID(p sessionIDParams) (Plugin, error) {
	out := &Producer{SessionTable: p.LRUSize}
	if p.HeaderName != "" || p.CookieName != "" {
		out.Sessions = []request.SessionSource{{Header: strings.ToLower(p.HeaderName), Cookie: p.CookieName}}
	}
	return Plugin{Producer: out}, Faults(
		Require(p.HeaderName == "" || p.CookieName == "", "cookieName", "and headerName cannot be used together"),
		Require(p.LRUSize >= 0, "lruSize", "must not be negative"),
		Duration("ttl", p.TTL))
}

type agentParams struct {
	AdditionalSessionHeaders []string `json:"additionalSessionHeaders,omitempty"`
}

// newAgentIdentity configures the headers with agents' sessions. They are used as sessions and, for
// requests without a fairness ID, as flows.
func newAgentIdentity(p agentParams) (Plugin, error) {
	out := &Producer{}
	headers := append(slices.Clone(p.AdditionalSessionHeaders), "x-claude-code-session-id", "x-session-affinity", "session-id", "session_id")
	for i, h := range headers {
		if h = strings.ToLower(strings.TrimSpace(h)); h == "" {
			return Plugin{}, Faults(Require(false, fmt.Sprintf("additionalSessionHeaders[%d]", i), "must not be empty"))
		}
		out.Sessions = append(out.Sessions, request.SessionSource{Header: h})
		out.FlowHeaders = append(out.FlowHeaders, h)
	}
	return Plugin{Producer: out}, nil
}
