package plugins

import (
	"encoding/base64"

	"github.com/grapevine-epp/grapevine/picker"
)

type sessionParams struct {
	HeaderName            string `json:"headerName,omitempty"`
	ProfileName           string `json:"profileName,omitempty"`
	SessionIDProducerName string `json:"sessionIDProducerName,omitempty"`
	Strategy              string `json:"strategy,omitempty"`

	// How other pickers bind sessions: here bindings go when they have not been
	// used for longest, and a key may be a name or a token at any time.
	Algorithm     string  `json:"algorithm,omitempty"`
	TTLSeconds    float64 `json:"evictionTtlSeconds,omitempty"`
	SweepSeconds  float64 `json:"evictionSweepSeconds,omitempty"`
	MissThreshold int     `json:"missThreshold,omitempty"`

	SessionIDConfig struct {
		Sources []sessionSource `json:"sources,omitempty"`
	} `json:"sessionIdConfig,omitempty"`
}

type sessionSource struct {
	Header string `json:"header,omitempty"`
	Cookie string `json:"cookie,omitempty"`
}

// producer tells where sessions are, when the parameters say so.
func (p sessionParams) producer() *Producer {
	var out Producer
	if p.HeaderName != "" {
		out.Sessions = append(out.Sessions, picker.SessionSource{Header: lower(p.HeaderName)})
	}
	for _, s := range p.SessionIDConfig.Sources {
		out.Sessions = append(out.Sessions, picker.SessionSource{Header: lower(s.Header), Cookie: s.Cookie})
	}
	if len(out.Sessions) == 0 {
		return nil
	}
	return &out
}

// home returns the candidate where the request's session is at home: the one
// of its last request as any replica knows it, or the one that a token of
// other pickers (base64 of namespace/name) names. -1 when there is none.
func home(c *picker.Cycle) int {
	if k := c.Bound(); k >= 0 {
		return k
	}
	token := c.Request.Session
	if token == "" || len(token) > 512 {
		return -1
	}
	var coded [512]byte
	var plain [384]byte
	n, err := base64.StdEncoding.Decode(plain[:], coded[:copy(coded[:], token)])
	if err != nil {
		return -1
	}
	name := plain[:n]
	for k := range c.Len() {
		v := c.At(k)
		if ns := len(v.Namespace); len(name) == ns+1+len(v.Name) && name[ns] == '/' &&
			string(name[:ns]) == v.Namespace && string(name[ns+1:]) == v.Name {
			return k
		}
	}
	return -1
}

// sessionScorer gives 1 to the session's endpoint and 0 to the others.
type sessionScorer struct{}

func newSessionScorer(p sessionParams) (Plugin, error) {
	return Plugin{Scorer: sessionScorer{}, Producer: p.producer()}, nil
}

// Score implements picker.Scorer.
func (sessionScorer) Score(c *picker.Cycle, scores []float64) {
	if k := home(c); k >= 0 {
		scores[k] = 1
	}
}

// sessionFilter keeps the session's endpoint alone, everybody when there is
// none.
type sessionFilter struct{}

func newSessionFilter(p sessionParams) (Plugin, error) {
	return Plugin{Filter: sessionFilter{}, Producer: p.producer()}, nil
}

// Filter implements picker.Filter.
func (sessionFilter) Filter(c *picker.Cycle, keep []bool) {
	at := home(c)
	if at < 0 {
		return
	}
	clear(keep)
	keep[at] = true
}
