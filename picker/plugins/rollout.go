package plugins

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

type rolloutParams struct {
	Scope struct {
		LabelSelector string `json:"labelSelector"`
	} `json:"scope"`
	HeaderSelectors []headerSelector `json:"headerSelectors,omitempty"`
	RevisionGating  struct {
		Mode             string `json:"mode"`
		RevisionLabelKey string `json:"revisionLabelKey"`
		RoleLabelKey     string `json:"roleLabelKey"`
		RequireRoles     struct {
			Values []string `json:"values,omitempty"`
		} `json:"requireRoles,omitempty"`
	} `json:"revisionGating"`
}

// headerSelector relates a header to a label: the answer's header has the label of the endpoint, and in
// mode strict the request's header keeps the endpoints with that value.
type headerSelector struct {
	Name       string `json:"name"`
	HeaderName string `json:"headerName"`
	LabelKey   string `json:"labelKey"`
	Mode       string `json:"mode"`
}

// Modes of revision gating, and of header selectors.
const (
	gateSum      = "sum"
	gateMaxRole  = "max-role"
	gateDisabled = "disabled"
	modeStrict   = "strict"
	modePrefer   = "prefer"
)

func usualRollout() (p rolloutParams) {
	p.RevisionGating.RevisionLabelKey = endpoint.LabelRevision
	p.RevisionGating.RoleLabelKey = "disaggregatedset.x-k8s.io/role"
	return p
}

// rollout keeps the endpoints of one revision for each request, in proportion to the endpoints of the
// revisions. Revisions that lack a required role get no requests.
type rollout struct {
	rolloutParams
	scope selector
	known atomic.Pointer[revisionShares]
}

// revisionShares are the weights of the revisions in one state of the pool. A revision that may not
// get requests is absent.
type revisionShares struct {
	pool   *endpoint.Snapshot
	names  []string // ascending
	weight map[string]float64
}

func newRollout(p rolloutParams) (plugin.Plugin, error) {
	scope, scopeErr := parseSelector(p.Scope.LabelSelector)
	g := p.RevisionGating
	active := g.Mode == gateSum || g.Mode == gateMaxRole
	errs := []error{
		plugin.Require(p.Scope.LabelSelector != "", "scope.labelSelector", "is required"),
		plugin.Require(scopeErr == nil, "scope.labelSelector", fmt.Sprint("is no label selector: ", scopeErr)),
		plugin.Require(active || g.Mode == gateDisabled, "revisionGating.mode", "must be sum, max-role or disabled"),
		plugin.Require(!active || len(g.RequireRoles.Values) > 0, "revisionGating.requireRoles.values", "must name at least one role"),
		plugin.Require(g.RevisionLabelKey != "", "revisionGating.revisionLabelKey", "must not be empty"),
		plugin.Require(g.RoleLabelKey != "", "revisionGating.roleLabelKey", "must not be empty"),
	}
	out := &plugin.Producer{}
	p.HeaderSelectors = slices.Clone(p.HeaderSelectors)
	for i := range p.HeaderSelectors {
		s := &p.HeaderSelectors[i]
		at := fmt.Sprintf("headerSelectors[%d].", i)
		s.HeaderName = lower(s.HeaderName)
		errs = append(errs,
			plugin.Require(s.Name != "", at+"name", "is required"),
			plugin.Require(s.HeaderName != "", at+"headerName", "is required"),
			plugin.Require(s.LabelKey != "", at+"labelKey", "is required"),
			plugin.Require(s.Mode == modeStrict || s.Mode == modePrefer, at+"mode", "must be strict or prefer"))
		out.Stamps = append(out.Stamps, plugin.Stamp{Header: s.HeaderName, Label: s.LabelKey})
	}
	return plugin.Plugin{
		Filter: &rollout{rolloutParams: p, scope: scope}, Screens: true, Producer: out,
		Differs: []string{"revisions are counted in this pool's endpoints: with a picker for each role, use mode disabled"},
	}, plugin.Faults(errs...)
}

// parseSelector parses a label selector in the form of kubectl: a=b, a!=b, a in (b,c), a notin (b,c),
// a, !a.
func parseSelector(text string) (selector, error) {
	var out selector
	for _, part := range splitOutside(text) {
		term, err := parseTerm(strings.TrimSpace(part))
		if err != nil {
			return selector{}, err
		}
		out.terms = append(out.terms, term)
	}
	return out, nil
}

// splitOutside splits at commas that are not in parentheses.
func splitOutside(text string) (parts []string) {
	depth, start := 0, 0
	for i, c := range text {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			parts, start = append(parts, text[start:i]), i+1
		}
	}
	return append(parts, text[start:])
}

func parseTerm(s string) (labelTerm, error) {
	bad := func() (labelTerm, error) { return labelTerm{}, fmt.Errorf("%q", s) }
	for _, op := range []struct{ sign, name string }{{"!=", "NotIn"}, {"==", "In"}, {"=", "In"}} {
		key, value, ok := strings.Cut(s, op.sign)
		if key = strings.TrimSpace(key); !ok {
			continue
		}
		value = strings.TrimSpace(value)
		if key == "" || strings.ContainsAny(key+value, "()!= ") {
			return bad()
		}
		return labelTerm{key, op.name, []string{value}}, nil
	}
	if key, list, ok := strings.Cut(s, "("); ok {
		words := strings.Fields(key)
		inner, closed := strings.CutSuffix(strings.TrimSpace(list), ")")
		if len(words) != 2 || !closed || words[1] != "in" && words[1] != "notin" {
			return bad()
		}
		term := labelTerm{words[0], "In", nil}
		if words[1] == "notin" {
			term.Operator = "NotIn"
		}
		for value := range strings.SplitSeq(inner, ",") {
			term.Values = append(term.Values, strings.TrimSpace(value))
		}
		return term, nil
	}
	key, absent := strings.CutPrefix(s, "!")
	if key == "" || strings.ContainsAny(key, " ()") {
		return bad()
	}
	if absent {
		return labelTerm{key, "DoesNotExist", nil}, nil
	}
	return labelTerm{key, "Exists", nil}, nil
}

// Filter implements cycle.Filter.
func (r *rollout) Filter(c *cycle.Cycle, keep []bool) {
	strict := false
	for _, s := range r.HeaderSelectors {
		value := ""
		if s.Mode == modeStrict && c.Request.Headers != nil {
			value = c.Request.Headers.Get(s.HeaderName)
		}
		if value == "" {
			continue
		}
		strict = true
		for k := range keep {
			v, _ := c.At(k).Label(s.LabelKey)
			keep[k] = keep[k] && v == value
		}
	}
	if r.RevisionGating.Mode == gateDisabled {
		return
	}
	shares, chosen := r.shares(c.Pool), ""
	if !strict {
		chosen = r.choose(c, shares)
	}
	for k := range keep {
		v, _ := c.At(k).Label(r.RevisionGating.RevisionLabelKey)
		keep[k] = keep[k] && shares.weight[v] > 0 && (chosen == "" || v == chosen)
	}
}

// choose returns the revision of the request: the one of the endpoint already chosen for another
// part, or a random one that has a candidate.
func (r *rollout) choose(c *cycle.Cycle, shares *revisionShares) string {
	if c.Peer != nil {
		if v, ok := c.Peer.Label(r.RevisionGating.RevisionLabelKey); ok {
			return v
		}
	}
	total := 0.
	present := c.Scratch(len(shares.names))
	clear(present)
	for k := range c.Len() {
		v, _ := c.At(k).Label(r.RevisionGating.RevisionLabelKey)
		if i, ok := slices.BinarySearch(shares.names, v); ok && present[i] == 0 {
			present[i] = shares.weight[v]
			total += present[i]
		}
	}
	at := c.Float64() * total
	last := ""
	for i, w := range present {
		if w == 0 {
			continue
		}
		if last = shares.names[i]; at < w {
			break
		}
		at -= w
	}
	return last
}

// shares returns the weights of the revisions in a state of the pool.
func (r *rollout) shares(pool *endpoint.Snapshot) *revisionShares {
	if s := r.known.Load(); s != nil && s.pool == pool {
		return s
	}
	s := r.weigh(pool)
	r.known.Store(s)
	return s
}

func (r *rollout) weigh(pool *endpoint.Snapshot) *revisionShares {
	g := &r.RevisionGating
	s := &revisionShares{pool: pool, weight: map[string]float64{}}
	counts, totals := map[string][]int{}, make([]int, len(g.RequireRoles.Values))
	for _, ep := range pool.Endpoints {
		revision, ok := ep.Label(g.RevisionLabelKey)
		if !ok || revision == "" || !r.scope.matches(ep) {
			continue
		}
		role, _ := ep.Label(g.RoleLabelKey)
		if i := slices.Index(g.RequireRoles.Values, role); i >= 0 {
			if counts[revision] == nil {
				counts[revision] = make([]int, len(totals))
			}
			counts[revision][i]++
		}
	}
	for revision, of := range counts {
		if slices.Contains(of, 0) {
			delete(counts, revision)
			continue
		}
		for i, n := range of {
			totals[i] += n
		}
	}
	largest := 0 // the first of equal ones
	for i, n := range totals {
		if n > totals[largest] {
			largest = i
		}
	}
	for revision, of := range counts {
		w := of[largest]
		if g.Mode == gateSum {
			w = 0
			for _, n := range of {
				w += n
			}
		}
		s.weight[revision] = float64(w)
		s.names = append(s.names, revision)
	}
	slices.Sort(s.names)
	return s
}

// matches reports whether the labels of an endpoint match all expressions.
func (s selector) matches(ep *endpoint.Endpoint) bool {
	for i := range s.terms {
		if v, ok := ep.Label(s.terms[i].Key); !s.terms[i].holds(v, ok) {
			return false
		}
	}
	return true
}
