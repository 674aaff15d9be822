package kube

import (
	"slices"

	"github.com/grapevine-epp/grapevine/cluster/federation"
)

// ViewOf converts a federation's view for a Controller. settled means that every cluster was heard,
// or had enough time.
func ViewOf(v *federation.View, settled bool) View {
	out := View{Cluster: v.Self, Settled: settled}
	for _, c := range v.Clusters {
		m := Member{Cluster: c.Name, Silent: c.State != federation.Live}
		if m.Silent {
			m.Reason = c.State.String()
		}
		for _, k := range c.Served {
			m.Served = append(m.Served, nameOf(k))
		}
		m.ServedKnown = c.ServedKnown
		for _, p := range c.Pools {
			if p.State == federation.Live || p.State == federation.Draining {
				m.Exports = append(m.Exports, Export{nameOf(p.Pool), p.State == federation.Draining})
			}
		}
		for _, own := range v.Exports {
			i := slices.IndexFunc(own.Acks, func(t federation.ExportAck) bool { return t.Cluster == c.Name })
			if i >= 0 {
				m.Holds = append(m.Holds, heldOf(v.Self, own.Pool, own.Acks[i]))
			}
		}
		out.Members = append(out.Members, m)
	}
	return out
}

// heldOf is another cluster's import of one of our exports. A cluster without objects counts as
// having it once it has accepted the export.
func heldOf(self string, pool federation.PoolKey, t federation.ExportAck) FoundImport {
	h := FoundImport{Name: nameOf(pool)}
	switch {
	case t.State == federation.Refused:
		h.Problem = "refused: " + t.Reason
	case t.State == federation.Silent:
	case t.Shown == federation.NotShown:
		h.Problem = t.ShownReason
	default:
		h.Clusters = []string{self}
	}
	return h
}

// Imports converts the local state for a federation.
func (l Local) Imports() (out []federation.Import) {
	for _, h := range l.Holds {
		out = append(out, federation.Import{Pool: h.key(), Clusters: h.Clusters, Reason: h.Problem})
	}
	return out
}

// Exported reports whether a pool is exported, and whether it is draining.
func (l Local) Exported(pool federation.PoolKey) (exported, draining bool) {
	i := slices.IndexFunc(l.Exports, func(e Export) bool { return e.key() == pool })
	return i >= 0, i >= 0 && l.Exports[i].Draining
}

func nameOf(k federation.PoolKey) Name { return Name{k.Namespace, k.Name} }

func (n Name) key() federation.PoolKey {
	return federation.PoolKey{Namespace: n.Namespace, Name: n.Name}
}
