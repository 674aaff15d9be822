package kube

import (
	"slices"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// namesOf returns the objectives and rewrites of a pool. If several rules name a model, the first
// rule of the oldest object applies.
func namesOf(group, name string, objectives []*objective, rewrites []*rewrite) (n request.Names) {
	for _, o := range objectives {
		if o.pool.names(group, name) {
			if n.Objectives == nil {
				n.Objectives = map[string]int{}
			}
			n.Objectives[o.name] = o.priority
		}
	}
	slices.SortFunc(rewrites, func(a, b *rewrite) int {
		if c := a.created.Compare(b.created); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	for _, w := range rewrites {
		if !w.pool.names(group, name) {
			continue
		}
		for _, r := range w.rules {
			models := r.models
			if models == nil {
				models = []string{request.AnyModel}
			}
			for _, m := range models {
				if n.Rewrites == nil {
					n.Rewrites = map[string]request.Rewrite{}
				}
				if _, older := n.Rewrites[m]; !older {
					n.Rewrites[m] = r.targets
				}
			}
		}
	}
	return n
}
