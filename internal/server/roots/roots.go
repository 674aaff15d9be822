package roots

import (
	"cmp"
	"maps"
	"slices"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Group is one model.
type Group struct {
	Root     string   // folder or repository name of its files
	Names    []string // served names other than Root, sorted
	Adapters []string // sorted
}

// Of groups the models of engines' lists by their source, sorted. A model without a source is its
// own source. Each name is in at most one group. Of omits groups with a configured name; configured
// reports whether a name is configured.
func Of(lists []*endpoint.ModelList, configured func(name string) bool) []Group {
	rootOf := votes{}   // of base models, by name
	parentOf := votes{} // of adapters, by name
	for _, l := range lists {
		for _, m := range l.Models {
			if m.Parent == "" {
				rootOf.add(m.Name, cmp.Or(m.Root, m.Name))
			} else {
				parentOf.add(m.Name, m.Parent)
			}
		}
	}
	for _, parents := range parentOf {
		for parent := range parents {
			if rootOf[parent] == nil { // engines that list adapters alone
				rootOf.add(parent, parent)
			}
		}
	}
	byRoot := map[string]*Group{}
	for name := range rootOf {
		root := rootOf.winner(name)
		if byRoot[root] == nil {
			byRoot[root] = &Group{Root: root}
		}
	}
	for name := range rootOf {
		if g := byRoot[rootOf.winner(name)]; byRoot[name] == nil {
			g.Names = append(g.Names, name)
		}
	}
	for name := range parentOf {
		if rootOf[name] == nil && byRoot[name] == nil {
			g := byRoot[rootOf.winner(parentOf.winner(name))]
			g.Adapters = append(g.Adapters, name)
		}
	}
	var out []Group
	for _, root := range slices.Sorted(maps.Keys(byRoot)) {
		g := byRoot[root]
		slices.Sort(g.Names)
		slices.Sort(g.Adapters)
		if !configured(root) && !slices.ContainsFunc(g.Names, configured) {
			g.Adapters = slices.DeleteFunc(g.Adapters, configured)
			out = append(out, *g)
		}
	}
	return out
}

// votes counts the engines that make a claim about a name.
type votes map[string]map[string]int

func (v votes) add(name, claim string) {
	if v[name] == nil {
		v[name] = map[string]int{}
	}
	v[name][claim]++
}

// winner returns the claim of most engines, the first by name among equals.
func (v votes) winner(name string) (best string) {
	n := 0
	for claim, count := range v[name] {
		if count > n || count == n && claim < best {
			best, n = claim, count
		}
	}
	return best
}
