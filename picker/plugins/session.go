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

	// Binding settings of other pickers. Here bindings are evicted by LRU, and a key may be a name
	// or a token.
	Algorithm     string  `json:"algorithm,omitempty"` // session_id_header: no tokens are issued
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

// sessionSource is a header, a cookie, or the result of a configured producer (a
// session-id-producer, which is applied anyway).
type sessionSource struct {
	Header    string `json:"header,omitempty"`
	Cookie    string `json:"cookie,omitempty"`
	Attribute string `json:"attribute,omitempty"`
	Producer  string `json:"producer,omitempty"`
}

// Algorithms of other pickers: clients name their sessions, or receive tokens.
const (
	bySessionID = "session_id_header"
	byToken     = "encoded_endpoint_header"
	byName      = "session_id" // as a strategy
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

// differs lists the settings that have a different effect here.
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

// producer returns the session sources, and the response header with the token for clients without
// a session.
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

// home returns the candidate bound to the request's session; -1 if there is none. It is the one
// named by another picker's token, or the one that served the session's last request at any
// replica. Many clients may share a token. If its endpoint is gone, they are placed individually
// rather than all at the first one's endpoint.
func home(c *cycle.Cycle) int {
	if k, isToken := named(c); isToken {
		return k
	}
	return c.Bound()
}

// named returns the candidate named by the session key, or -1, and whether the key is a token:
// base64 of namespace/name.
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

// isObject reports whether b has the form namespace/name.
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

// AnswerHeaders returns an Answer function for picker.Rules that sets the session token, unless token is
// "", and the stamps; nil if there is nothing to set.
func AnswerHeaders(token string, stamps []plugin.Stamp) func(c *cycle.Cycle, chosen int32) []request.HeaderSet {
	if len(stamps) == 0 {
		if token == "" {
			return nil
		}
		return SessionHeader(token)
	}
	return func(c *cycle.Cycle, chosen int32) (out []request.HeaderSet) {
		if token != "" {
			out = SessionHeader(token)(c, chosen)
		}
		for _, s := range stamps {
			if value, ok := c.All(chosen).Label(s.Label); ok && value != "" {
				out = append(out, request.HeaderSet{Name: s.Header, Value: value})
			}
		}
		return out
	}
}

// SessionHeader returns an Answer function for picker.Rules that issues tokens in a response
// header, as other pickers do. Requests without their own session get the base64 of their
// endpoint's namespace and name. A client that sends the token back reaches the same endpoint
// through any replica.
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

// sessionScorer scores the session's endpoint 1 and all others 0.
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

// sessionFilter keeps only the session's endpoint, or all if there is none.
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
