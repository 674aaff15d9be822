package plugins

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

type sessionParams struct {
	HeaderName            string `json:"headerName,omitempty"`
	ProfileName           string `json:"profileName,omitempty"`
	SessionIDProducerName string `json:"sessionIDProducerName,omitempty"`
	Strategy              string `json:"strategy,omitempty"`

	// How other pickers bind sessions: here bindings go when they have not been
	// used for longest, and a key may be a name or a token at any time.
	Algorithm     string  `json:"algorithm,omitempty"` // session_id_header: no tokens are handed out
	TTLSeconds    float64 `json:"evictionTtlSeconds,omitempty"`
	SweepSeconds  float64 `json:"evictionSweepSeconds,omitempty"`
	MissThreshold int     `json:"missThreshold,omitempty"`

	EncodedEndpointHeaderConfig struct {
		Header string `json:"header,omitempty"`
	} `json:"encodedEndpointHeaderConfig,omitempty"`
	SessionIDConfig struct {
		Sources      []sessionSource `json:"sources,omitempty"`
		TTLSeconds   float64         `json:"evictionTtlSeconds,omitempty"`
		SweepSeconds float64         `json:"evictionSweepSeconds,omitempty"`
	} `json:"sessionIdConfig,omitempty"`
}

// sessionSource is a header, a cookie, or what a producer of the configuration has
// found (a session-id-producer, whose word counts by itself).
type sessionSource struct {
	Header    string `json:"header,omitempty"`
	Cookie    string `json:"cookie,omitempty"`
	Attribute string `json:"attribute,omitempty"`
	Producer  string `json:"producer,omitempty"`
}

// The algorithms of other pickers: clients name their sessions, or are handed
// tokens.
const (
	bySessionID = "session_id_header"
	byToken     = "encoded_endpoint_header"
	byName      = "session_id" // as strategy
)

func (p sessionParams) check() error {
	errs := []error{
		plugin.Require(p.Algorithm == "" || p.Algorithm == bySessionID || p.Algorithm == byToken,
			"algorithm", "must be "+byToken+" or "+bySessionID),
		plugin.Require(p.Strategy == "" || p.Strategy == byName || p.Strategy == byToken, "strategy", "must be "+byToken+" or "+byName),
	}
	for i, s := range p.SessionIDConfig.Sources {
		n := 0
		for _, v := range []string{s.Header, s.Cookie, s.Attribute} {
			if v != "" {
				n++
			}
		}
		errs = append(errs, plugin.Require(n == 1, fmt.Sprintf("sessionIdConfig.sources[%d]", i), "must name one of header, cookie and attribute"))
	}
	return plugin.Faults(errs...)
}

// differs says what of the settings is done otherwise.
func (p sessionParams) differs() (list []string) {
	if p.SessionIDConfig.TTLSeconds > 0 || p.SessionIDConfig.SweepSeconds > 0 || p.TTLSeconds > 0 || p.SweepSeconds > 0 {
		list = append(list, "sessions are forgotten when the table is full, those first that were not used for longest, not after a time")
	}
	if p.ProfileName != "" {
		list = append(list, "a session is bound to the endpoint that answers, whatever profileName says")
	}
	for _, s := range p.SessionIDConfig.Sources {
		if s.Attribute != "" && s.Producer == "" {
			list = append(list, "attribute "+s.Attribute+" is not known: give the header in which clients send it")
		}
	}
	return list
}

// producer tells where sessions are, and in which header clients without one
// are told where they were.
func (p sessionParams) producer() *plugin.Producer {
	var out plugin.Producer
	if p.HeaderName != "" {
		out.Sessions = append(out.Sessions, request.SessionSource{Header: lower(p.HeaderName)})
	}
	if p.Algorithm != bySessionID && p.Strategy != byName && len(p.SessionIDConfig.Sources) == 0 {
		out.TokenHeader = cmp.Or(lower(strings.TrimSpace(p.EncodedEndpointHeaderConfig.Header)), lower(p.HeaderName), request.HeaderSessionToken)
		if own := lower(strings.TrimSpace(p.EncodedEndpointHeaderConfig.Header)); own != "" {
			out.Sessions = append(out.Sessions, request.SessionSource{Header: own})
		}
	}
	for _, s := range p.SessionIDConfig.Sources {
		if s.Attribute != "" {
			continue
		}
		out.Sessions = append(out.Sessions, request.SessionSource{Header: lower(s.Header), Cookie: s.Cookie})
	}
	if len(out.Sessions) == 0 && out.TokenHeader == "" {
		return nil
	}
	return &out
}

// home returns the candidate where the request's session is at home: the one
// that a token of other pickers names, or the one of the session's last request
// as any replica knows it. -1 when there is none. A token is shared by all whom
// its endpoint served: where that is gone they are placed one by one, not all
// at the endpoint that got the first of them.
func home(c *cycle.Cycle) int {
	if k, isToken := named(c); isToken {
		return k
	}
	return c.Bound()
}

// named returns the candidate that the session key names, -1 when it is none of
// them, and whether the key is a token at all: base64 of namespace/name.
func named(c *cycle.Cycle) (k int, isToken bool) {
	token := c.Request.Session
	if token == "" || len(token) > 512 {
		return -1, false
	}
	var coded [512]byte
	var plain [384]byte
	n, err := base64.StdEncoding.Decode(plain[:], coded[:copy(coded[:], token)])
	if err != nil || !isObject(plain[:n]) {
		return -1, false
	}
	name := plain[:n]
	for k := range c.Len() {
		v := c.At(k)
		if ns := len(v.Namespace); len(name) == ns+1+len(v.Name) && name[ns] == '/' &&
			string(name[:ns]) == v.Namespace && string(name[ns+1:]) == v.Name {
			return k, true
		}
	}
	return -1, true
}

// isObject reports whether b may be namespace/name of an endpoint.
func isObject(b []byte) bool {
	ns, name, ok := bytes.Cut(b, []byte("/"))
	if !ok || len(ns) == 0 || len(name) == 0 {
		return false
	}
	for _, c := range b {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// SessionHeader returns what hands out tokens in a header of answers, for
// picker.Rules: to requests that name no session of their own the namespace and
// name of their endpoint in base64, as other pickers do. A client that sends it
// back goes there again, whichever replica it asks.
func SessionHeader(header string) func(c *cycle.Cycle, chosen int32) []request.HeaderSet {
	return func(c *cycle.Cycle, chosen int32) []request.HeaderSet {
		if _, isToken := named(c); c.Request.Session != "" && !isToken {
			return nil
		}
		v := c.All(chosen)
		if v.Namespace == "" || v.Name == "" {
			return nil
		}
		return []request.HeaderSet{{Name: header, Value: base64.StdEncoding.EncodeToString([]byte(v.Namespace + "/" + v.Name))}}
	}
}

// sessionScorer gives 1 to the session's endpoint and 0 to the others.
type sessionScorer struct{}

func newSessionScorer(p sessionParams) (plugin.Plugin, error) {
	return plugin.Plugin{Scorer: sessionScorer{}, Producer: p.producer(), Differs: p.differs()}, p.check()
}

// Score implements cycle.Scorer.
func (sessionScorer) Score(c *cycle.Cycle, scores []float64) {
	if k := home(c); k >= 0 {
		scores[k] = 1
	}
}

// sessionFilter keeps the session's endpoint alone, everybody when there is
// none.
type sessionFilter struct{}

func newSessionFilter(p sessionParams) (plugin.Plugin, error) {
	return plugin.Plugin{Filter: sessionFilter{}, Producer: p.producer(), Differs: p.differs()}, p.check()
}

// Filter implements cycle.Filter.
func (sessionFilter) Filter(c *cycle.Cycle, keep []bool) {
	at := home(c)
	if at < 0 {
		return
	}
	clear(keep)
	keep[at] = true
}
