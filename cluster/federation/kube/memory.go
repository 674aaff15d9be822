package kube

import (
	"slices"
	"time"
)

// subject is one cluster's export of one pool.
type subject struct {
	Name
	cluster string
}

// memory is a controller's record of other clusters' statements, from round to round. It is pure.
type memory struct {
	// claims are the exports that this process has received, true if the last statement was that the
	// export is draining. One is dropped when the import no longer names the cluster.
	claims map[subject]bool
	// lost has the time since which a cluster that our entry names has stated nothing about the pool.
	lost map[subject]time.Time
}

func newMemory() *memory {
	return &memory{claims: map[subject]bool{}, lost: map[subject]time.Time{}}
}

// observe updates the record from the statements in f.
func (m *memory) observe(f *facts) {
	named := map[subject]bool{}
	for n, i := range f.imports {
		if i.entry == nil {
			continue
		}
		for _, e := range i.entry.Clusters {
			s := subject{n, e.Name}
			if named[s] = true; e.Name == f.Cluster {
				continue
			}
			if f.states(s) {
				delete(m.lost, s)
			} else if _, known := m.lost[s]; !known && f.Settled {
				m.lost[s] = f.now
			}
		}
	}
	for _, other := range f.Members {
		for _, e := range other.Exports {
			if s := (subject{e.Name, other.Cluster}); !other.Silent {
				m.claims[s], named[s] = e.Draining, true
			}
		}
	}
	for s := range m.claims {
		if !named[s] {
			delete(m.claims, s)
		}
	}
	for s := range m.lost {
		if !named[s] {
			delete(m.lost, s)
		}
	}
}

// states reports whether a cluster states now that it exports a pool, or that it does not.
func (f *facts) states(s subject) bool {
	m := f.memberOf(s.cluster)
	if m == nil || m.Silent {
		return false
	}
	_, exports := m.exports(s.Name)
	return exports || f.withdrawn(m, s.Name)
}

// withdrawn reports whether a member that is heard, and does not export a pool, has withdrawn it. A
// member that does not serve the pool states nothing. Older releases do not send the pools that they
// serve: their missing export counts as withdrawn if this process has received it before.
func (f *facts) withdrawn(m *Member, n Name) bool {
	if _, exports := m.exports(n); exports {
		return false
	}
	if m.ServedKnown {
		return slices.Contains(m.Served, n)
	}
	_, claimed := f.memory.claims[subject{n, m.Cluster}]
	return claimed
}

// memberOf returns the first member with that name, or nil.
func (f *facts) memberOf(cluster string) *Member {
	i := slices.IndexFunc(f.Members, func(m Member) bool { return m.Cluster == cluster })
	if i < 0 {
		return nil
	}
	return &f.Members[i]
}

func (m *Member) exports(n Name) (Export, bool) {
	i := slices.IndexFunc(m.Exports, func(e Export) bool { return e.Name == n })
	if i < 0 {
		return Export{}, false
	}
	return m.Exports[i], true
}

// concerned reports whether this replica has a statement about a pool's import: it serves the pool,
// it created the import, or a member sent a statement about the pool. The imports of all other
// pools belong to other groups of this cluster.
func (f *facts) concerned(n Name) bool {
	if f.owned(n) {
		return true
	}
	for s := range f.memory.claims {
		if s.Name == n {
			return true
		}
	}
	return slices.ContainsFunc(f.Members, func(m Member) bool {
		_, exports := m.exports(n)
		return !m.Silent && (exports || slices.Contains(m.Served, n))
	})
}

// owned reports whether this group serves a pool, or created its import.
func (f *facts) owned(n Name) bool {
	if _, served := f.serves[n]; served {
		return true
	}
	i := f.imports[n]
	if i == nil || i.group == "" {
		return false
	}
	for s := range f.serves {
		if s.String() == i.group {
			return true
		}
	}
	return false
}

// owns reports whether this group may conclude something from silence about a pool: no other group of
// this cluster created the import.
func (f *facts) owns(n Name) bool {
	i := f.imports[n]
	return f.owned(n) || i == nil || i.group == ""
}

// abandoned reports whether the entry of another group states for longer than forget that no cluster
// takes requests. A living group would have removed it.
func (f *facts) abandoned(i *import_, p *plan) bool {
	if i == nil || i.entry == nil || !f.Settled {
		return false
	}
	accepted, ok := conditionOf(i.entry.Conditions, typeAccepted)
	return ok && accepted.Status == "False" && !p.until(accepted.Since.Add(f.forget+f.drain+2*f.lease), f.now)
}
