package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// pool is the relevant content of an InferencePool, of either version.
type pool struct {
	meta
	selector string   // label selector, "" if the pool's is invalid
	problem  string   // why the selector is invalid
	ports    []uint16 // target ports, in the pool's order
}

// meta is the relevant metadata of an object.
type meta struct {
	name, uid, version string
	generation         int64
	created            time.Time
}

func metaOf(m kubeapi.Meta) meta {
	return meta{name: m.Name, uid: m.UID, version: m.ResourceVersion, generation: m.Generation, created: m.Created}
}

// same reports whether two reads have the same object with the same spec.
func (m *meta) same(o *meta) bool { return m.uid == o.uid && m.generation == o.generation }

// key implements the key of a kubeapi.Kind.
func (m *meta) key() (name, version string) { return m.name, m.version }

// readPool reads a v1 pool.
func readPool(raw []byte) (pool, error) {
	var o struct {
		Metadata kubeapi.Meta `json:"metadata"`
		Spec     struct {
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			TargetPorts []struct {
				Number uint16 `json:"number"`
			} `json:"targetPorts"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return pool{}, err
	}
	p := pool{meta: metaOf(o.Metadata)}
	p.selector, p.problem = selectorOf(o.Spec.Selector.MatchLabels)
	for _, t := range o.Spec.TargetPorts {
		if t.Number > 0 && !slices.Contains(p.ports, t.Number) {
			p.ports = append(p.ports, t.Number)
		}
	}
	return p, nil
}

// readPoolOld reads a v1alpha2 pool.
func readPoolOld(raw []byte) (pool, error) {
	var o struct {
		Metadata kubeapi.Meta `json:"metadata"`
		Spec     struct {
			Selector   map[string]string `json:"selector"`
			TargetPort uint16            `json:"targetPortNumber"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return pool{}, err
	}
	p := pool{meta: metaOf(o.Metadata)}
	p.selector, p.problem = selectorOf(o.Spec.Selector)
	if o.Spec.TargetPort > 0 {
		p.ports = []uint16{o.Spec.TargetPort}
	}
	return p, nil
}

// selectorOf formats labels as a selector. The CRDs of pools do not validate label names.
func selectorOf(labels map[string]string) (selector, problem string) {
	if len(labels) == 0 {
		return "", "the selector names no label"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if !labelName(name) {
			return "", fmt.Sprintf("the selector contains %q, which is not a valid label name", name)
		}
		if v := labels[name]; v != "" && !labelPart(v) {
			return "", fmt.Sprintf("the selector requires %s to be %q, which is not a valid label value", name, v)
		}
		parts = append(parts, name+"="+labels[name])
	}
	return strings.Join(parts, ","), ""
}

// labelName reports whether s is a valid label name: a name with an optional DNS prefix and slash.
func labelName(s string) bool {
	if domain, name, found := strings.Cut(s, "/"); found {
		return len(domain) <= 253 && labelPart(name) && domain == strings.ToLower(domain) &&
			!strings.Contains(domain, "_") && !slices.ContainsFunc(strings.Split(domain, "."), func(p string) bool { return !labelPart(p) })
	}
	return labelPart(s)
}

// labelPart reports whether s is a valid label value, or name without prefix.
func labelPart(s string) bool {
	letter := func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	}
	if s == "" || len(s) > 63 || !letter(s[0]) || !letter(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !letter(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// poolRef is a reference to a pool.
type poolRef struct {
	Group *string `json:"group"`
	Kind  string  `json:"kind"`
	Name  string  `json:"name"`
}

// names reports whether the reference is to that pool.
func (r *poolRef) names(group, name string) bool {
	return (r.Group == nil || *r.Group == group) && (r.Kind == "" || r.Kind == kindPool) && r.Name == name
}

// objective is the relevant content of an InferenceObjective.
type objective struct {
	meta
	pool     poolRef
	priority int
	accepted condition
}

func readObjective(raw []byte) (objective, error) {
	var o struct {
		Metadata kubeapi.Meta `json:"metadata"`
		Spec     struct {
			Priority int32   `json:"priority"`
			PoolRef  poolRef `json:"poolRef"`
		} `json:"spec"`
	}
	err := json.Unmarshal(raw, &o)
	return objective{meta: metaOf(o.Metadata), pool: o.Spec.PoolRef, priority: int(o.Spec.Priority), accepted: acceptedOf(raw)}, err
}

// rewrite is the relevant content of an InferenceModelRewrite.
type rewrite struct {
	meta
	pool     poolRef
	rules    []rule
	accepted condition
}

// rule replaces the named models by one of its targets.
type rule struct {
	models  []string // nil: every model
	targets request.Rewrite
}

func readRewrite(raw []byte) (rewrite, error) {
	var o struct {
		Metadata kubeapi.Meta `json:"metadata"`
		Spec     struct {
			PoolRef poolRef `json:"poolRef"`
			Rules   []struct {
				Matches []struct {
					Model struct {
						Type  string `json:"type"`
						Value string `json:"value"`
					} `json:"model"`
				} `json:"matches"`
				Targets []struct {
					Model  string `json:"modelRewrite"`
					Weight *int32 `json:"weight"`
				} `json:"targets"`
			} `json:"rules"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return rewrite{}, err
	}
	w := rewrite{meta: metaOf(o.Metadata), pool: o.Spec.PoolRef, accepted: acceptedOf(raw)}
	for _, r := range o.Spec.Rules {
		var out rule
		weighted := false
		for _, t := range r.Targets {
			weighted = weighted || t.Weight != nil
		}
		for _, t := range r.Targets {
			weight := 1
			if weighted { // targets without a weight are never drawn
				weight = 0
				if t.Weight != nil {
					weight = int(*t.Weight)
				}
			}
			out.targets = append(out.targets, request.WeightedModel{Model: t.Model, Weight: weight})
		}
		for _, m := range r.Matches {
			if m.Model.Value != "" && (m.Model.Type == "" || m.Model.Type == "Exact") {
				out.models = append(out.models, m.Model.Value)
			}
		}
		if len(r.Matches) > 0 && out.models == nil {
			continue // unknown match type
		}
		w.rules = append(w.rules, out)
	}
	return w, nil
}
