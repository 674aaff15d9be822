package settings

import (
	"strings"

	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

type sessionIDParams struct {
	HeaderName string `json:"headerName,omitempty"`
	CookieName string `json:"cookieName,omitempty"`
	LRUSize    int    `json:"lruSize,omitempty"`
	TTL        string `json:"ttl,omitempty"`
}

func newSessionID(p sessionIDParams) (plugin.Plugin, error) {
	out := &plugin.Producer{SessionTable: p.LRUSize}
	if p.HeaderName != "" || p.CookieName != "" {
		out.Sessions = []request.SessionSource{{Header: strings.ToLower(p.HeaderName), Cookie: p.CookieName}}
	}
	return plugin.Plugin{Producer: out}, plugin.Faults(
		plugin.Require(p.HeaderName == "" || p.CookieName == "", "cookieName", "and headerName exclude each other"),
		plugin.Require(p.LRUSize >= 0, "lruSize", "must not be negative"),
		plugin.Duration("ttl", p.TTL))
}
