package plugin

import (
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
		Require(p.HeaderName == "" || p.CookieName == "", "cookieName", "and headerName exclude each other"),
		Require(p.LRUSize >= 0, "lruSize", "must not be negative"),
		Duration("ttl", p.TTL))
}
