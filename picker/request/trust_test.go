package request

import (
	"crypto/sha256"
	"slices"
	"testing"
	"time"
)

type trustHeaders map[string]string

func (h trustHeaders) Get(name string) string { return h[name] }

func asked(more trustHeaders) *Request {
	h := trustHeaders{
		HeaderObjective: "urgent", HeaderFairnessAlt: "team-a", HeaderModelRewriteAlt: "secret", HeaderSLOTTFT: "200", "x-team": "a",
	}
	for k, v := range more {
		h[k] = v
	}
	r := &Request{Headers: h, Body: []byte(`{"model":"chat","prompt":"hi"}`), Path: "/v1/completions"}
	if err := Parse(r); err != nil {
		panic(err)
	}
	return r
}

func TestTrust(t *testing.T) {
	strict := &Trust{Proxies: []string{"spiffe://a/gw"}, TokenHeader: "x-token", Tokens: [][32]byte{sha256.Sum256([]byte("old")), sha256.Sum256([]byte("new"))}, Tenant: "x-team"}
	for name, c := range map[string]struct {
		trust    *Trust
		header   trustHeaders
		proxy    []string
		believed bool
		remove   []string
	}{
		"nobody asks": {trust: nil, believed: true},
		"proxy":       {trust: strict, proxy: []string{"gw.example", "spiffe://a/gw"}, believed: true},
		"token":       {trust: strict, header: trustHeaders{"x-token": "new"}, believed: true, remove: []string{"x-token"}},
		"wrong token": {trust: strict, header: trustHeaders{"x-token": "New"}, remove: []string{"x-token", HeaderModelRewriteAlt, HeaderFairnessAlt, HeaderSLOTTFT}},
		"other proxy": {trust: strict, proxy: []string{"spiffe://a/other"}, remove: []string{HeaderModelRewriteAlt, HeaderFairnessAlt, HeaderSLOTTFT}},
		"no token":    {trust: &Trust{TokenHeader: "x-token"}, remove: []string{HeaderModelRewriteAlt, HeaderFairnessAlt, HeaderSLOTTFT}},
	} {
		r := asked(c.header)
		remove := c.trust.Apply(r, c.proxy, nil)
		if !slices.Equal(remove, c.remove) {
			t.Errorf("%s: removes %q, want %q", name, remove, c.remove)
		}
		if believed := r.Target == "secret"; believed != c.believed || believed == r.Capped || believed != (r.FairnessID == "team-a") || believed != (r.SLOTTFT == 200*time.Millisecond) {
			t.Errorf("%s: target %q, capped %t, fairness %q, latency %s", name, r.Target, r.Capped, r.FairnessID, r.SLOTTFT)
		}
		if c.trust == strict && r.Tenant != "a" {
			t.Errorf("%s: tenant %q", name, r.Tenant)
		}
	}
	r := asked(nil)
	open := &Trust{Others: Limits{MaxPriority: 7, Rewrite: true, Fairness: true, Latency: true}}
	if remove := open.Apply(r, nil, nil); len(remove) > 0 || r.Target != "secret" || r.FairnessID != "team-a" || r.Tenant != "team-a" || !r.Capped || r.MaxPriority != 7 {
		t.Errorf("generous limits: removes %q, %+v", remove, r)
	}
}
