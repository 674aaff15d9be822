package request

import (
	"crypto/sha256"
	"crypto/subtle"
	"slices"
)

// IntentHeaders returns the headers in which clients state how to serve a request. A Trust limits
// their effect.
func IntentHeaders() []string {
	return []string{
		HeaderObjective, HeaderObjectiveAlt, HeaderFairness, HeaderFairnessAlt, HeaderModelRewrite, HeaderModelRewriteAlt,
		HeaderSLOTTFT, HeaderSLOTTFTAlt, HeaderSLOTPOT, HeaderSLOTPOTAlt, HeaderClusters,
	}
}

// Trust defines whose intent headers count in full, and the limits for all others. A nil Trust
// trusts everyone. It is immutable.
type Trust struct {
	Proxies     []string   // SPIFFE or DNS names of trusted proxies
	TokenHeader string     // lower case; a request with one of Tokens in it is trusted
	Tokens      [][32]byte // SHA-256
	Tenant      string     // header with the tenant, lower case; "" for the fairness id
	Others      Limits
}

// Limits are the permissions of untrusted requests.
type Limits struct {
	MaxPriority int  // cap on the priority of objectives
	Rewrite     bool // the model rewrite header counts
	Fairness    bool // the fairness id counts
	Latency     bool // latency targets count
	Clusters    bool // the list of allowed clusters counts
}

// Apply removes untrusted values from a parsed request. names are those in the proxy's verified
// certificate. It appends the headers to remove from the request to dst: the token, and ignored
// values.
func (t *Trust) Apply(r *Request, names, dst []string) []string {
	if t == nil || r.Headers == nil {
		return dst
	}
	if t.TokenHeader != "" && r.Headers.Get(t.TokenHeader) != "" {
		dst = append(dst, t.TokenHeader)
	}
	if !t.isTrusted(r, names) {
		dst = t.limit(r, dst)
	}
	r.Tenant = r.FairnessID
	if t.Tenant != "" {
		r.Tenant = header(r.Headers, t.Tenant, t.Tenant)
	}
	return dst
}

// isTrusted reports whether the request is trusted.
func (t *Trust) isTrusted(r *Request, names []string) bool {
	for _, n := range names {
		if slices.Contains(t.Proxies, n) {
			return true
		}
	}
	if t.TokenHeader == "" {
		return false
	}
	sum := sha256.Sum256([]byte(r.Headers.Get(t.TokenHeader)))
	found := 0
	for i := range t.Tokens {
		found |= subtle.ConstantTimeCompare(sum[:], t.Tokens[i][:])
	}
	return found == 1
}

// limit applies the limits for untrusted requests.
func (t *Trust) limit(r *Request, dst []string) []string {
	ignore := func(newer, older string) {
		for _, name := range []string{newer, older} {
			if r.Headers.Get(name) != "" {
				dst = append(dst, name)
			}
		}
	}
	r.Capped, r.MaxPriority = true, t.Others.MaxPriority
	if !t.Others.Rewrite {
		ignore(HeaderModelRewrite, HeaderModelRewriteAlt)
		r.Target = r.Model
	}
	if !t.Others.Fairness {
		ignore(HeaderFairness, HeaderFairnessAlt)
		r.FairnessID, r.Unnamed = "", true
	}
	if !t.Others.Latency {
		ignore(HeaderSLOTTFT, HeaderSLOTTFTAlt)
		ignore(HeaderSLOTPOT, HeaderSLOTPOTAlt)
		r.SLOTTFT, r.SLOTPOT = 0, 0
	}
	if !t.Others.Clusters && r.Headers.Get(HeaderClusters) != "" {
		dst, r.Clusters = append(dst, HeaderClusters), ""
	}
	return dst
}
