package config

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// effectiveTrust is the trust section with its defaults.
type effectiveTrust struct {
	Proxies      []string        `json:"proxies,omitempty"`
	TokenHeader  string          `json:"tokenHeader,omitempty"`
	TokenSHA256  []string        `json:"tokenSHA256,omitempty"`
	TenantHeader string          `json:"tenantHeader,omitempty"`
	Others       effectiveOthers `json:"others"`
}

type effectiveOthers struct {
	MaxPriority int  `json:"maxPriority"`
	Rewrite     bool `json:"rewrite"`
	Fairness    bool `json:"fairness"`
	Latency     bool `json:"latency"`
	Clusters    bool `json:"clusters"`
}

const defaultTokenHeader = "x-grapevine-token"

// readTrust reads whose intent headers count.
func (b *builder) readTrust(n strict.Node) {
	if !n.Found() {
		return
	}
	o := n.Object()
	t := &request.Trust{Others: request.Limits{Fairness: true, Latency: true, Clusters: true}}
	e := &effectiveTrust{}
	t.Proxies = texts(o.Field("proxies"))
	header := o.Field("tokenHeader")
	list, _ := o.Field("tokenSHA256").List()
	for _, item := range list {
		s, ok := item.Text()
		sum, err := hex.DecodeString(strings.TrimPrefix(s, "sha256:"))
		if ok && (err != nil || len(sum) != len([32]byte{})) {
			item.Problem("printf %s TOKEN | sha256sum", "%s: want the SHA-256 of a token in 64 hexadecimal digits, not %q", item.Path(), s)
			continue
		}
		if ok {
			t.Tokens = append(t.Tokens, [32]byte(sum))
			e.TokenSHA256 = append(e.TokenSHA256, hex.EncodeToString(sum))
		}
	}
	if header.Found() && len(list) == 0 {
		header.Problem("", "%s: a header for tokens, and no tokenSHA256", header.Path())
	}
	if len(list) > 0 {
		t.TokenHeader = defaultTokenHeader
		if header.Found() {
			s, _ := header.Text()
			t.TokenHeader = strings.ToLower(s)
		}
	}
	if tenant := o.Field("tenantHeader"); tenant.Found() {
		s, _ := tenant.Text()
		t.Tenant = strings.ToLower(s)
	}
	readLimits(o.Field("others"), &t.Others)
	o.Done()
	e.Proxies, e.TokenHeader, e.TenantHeader, e.Others = t.Proxies, t.TokenHeader, t.Tenant, effectiveOthers(t.Others)
	b.out.Trust, b.out.effective.Trust = t, e
}

func readLimits(n strict.Node, l *request.Limits) {
	if !n.Found() {
		return
	}
	o := n.Object()
	if v, ok := o.Field("maxPriority").Int(-1<<31, 1<<31-1); ok {
		l.MaxPriority = int(v)
	}
	for name, into := range map[string]*bool{"rewrite": &l.Rewrite, "fairness": &l.Fairness, "latency": &l.Latency, "clusters": &l.Clusters} {
		if v, ok := o.Field(name).Bool(); ok {
			*into = v
		}
	}
	o.Done()
}

// texts reads a list of strings.
func texts(n strict.Node) (out []string) {
	list, _ := n.List()
	for _, item := range list {
		if s, ok := item.Text(); ok {
			out = append(out, s)
		}
	}
	return out
}

// TrustMode describes in one line whose intent headers count.
func (c *Config) TrustMode() string {
	if c.Trust == nil {
		return "trust: anyone who reaches the proxy may set priority, fairness id, latency targets and the model's rewrite (no trust section)"
	}
	var who []string
	if len(c.Trust.Proxies) > 0 {
		who = append(who, "proxies with certificates of "+strings.Join(c.Trust.Proxies, ", ")+" (with --client-ca)")
	}
	if n := len(c.Trust.Tokens); n > 0 {
		who = append(who, fmt.Sprintf("requests with one of %d tokens in %s", n, c.Trust.TokenHeader))
	}
	if len(who) == 0 {
		who = []string{"no client"}
	}
	l := c.Trust.Others
	others := []string{fmt.Sprintf("priority up to %d", l.MaxPriority)}
	for _, may := range []struct {
		on   bool
		what string
	}{{l.Fairness, "fairness id"}, {l.Latency, "latency targets"}, {l.Rewrite, "rewrite"}, {l.Clusters, "clusters"}} {
		if may.on {
			others = append(others, may.what)
		}
	}
	return "trust: in full " + strings.Join(who, "; ") + "; others: " + strings.Join(others, ", ")
}
