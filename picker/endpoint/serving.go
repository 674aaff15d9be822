package endpoint

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// modelIndex says which endpoints serve a model, so that a pool of many models
// with few endpoints each costs a decision no more than a small pool. It is immutable:
// when one endpoint's list changes, what it does not touch is used again.
type modelIndex struct {
	byName map[string][]int32 // positions in Snapshot.Endpoints, ascending
	bases  map[string][]int32 // the same of base models; "": it is not known
	open   []int32            // those of which nothing is known
	names  []Model            // sorted; of several parents, one
}

func newModelIndex(endpoints []*Endpoint) *modelIndex {
	x := &modelIndex{byName: map[string][]int32{}, bases: map[string][]int32{}}
	for i, ep := range endpoints {
		base := ep.Base()
		x.bases[base] = append(x.bases[base], int32(i))
		known := ep.served(func(m Model) {
			list := x.byName[m.Name]
			if len(list) == 0 {
				x.names = append(x.names, m)
			}
			if n := len(list); n == 0 || list[n-1] != int32(i) {
				x.byName[m.Name] = append(list, int32(i))
			}
		})
		if !known {
			x.open = append(x.open, int32(i))
		}
	}
	slices.SortFunc(x.names, byName)
	return x
}

func byName(a, b Model) int { return strings.Compare(a.Name, b.Name) }

// serves is what one endpoint tells an index.
type serves struct {
	known  bool
	base   string
	models []Model
}

func (e *Endpoint) serves() (s serves) {
	s.base = e.Base()
	s.known = e.served(func(m Model) { s.models = append(s.models, m) })
	return s
}

// another reports whether a list is another engine's: it has none of the names that are no
// adapters.
func (s *serves) another(list *ModelList) bool {
	return s.known && !slices.ContainsFunc(s.models, func(m Model) bool { return m.Parent == "" && list.Has(m.Name) })
}

// with returns the index after the endpoint at position i has changed what it serves.
func (x *modelIndex) with(i int32, was, is serves) *modelIndex {
	next := &modelIndex{byName: maps.Clone(x.byName), bases: maps.Clone(x.bases), open: x.open, names: x.names}
	drop(next.bases, was.base, i)
	add(next.bases, is.base, i)
	if !was.known {
		next.open = without(next.open, i)
	}
	if !is.known {
		next.open = including(next.open, i)
	}
	for _, m := range was.models {
		drop(next.byName, m.Name, i)
	}
	for _, m := range is.models {
		add(next.byName, m.Name, i)
	}
	next.rename(was.models, is.models)
	return next
}

// rename mends the names after some are served by one endpoint less, or more.
func (x *modelIndex) rename(was, is []Model) {
	if slices.Equal(was, is) {
		return
	}
	x.names = slices.DeleteFunc(slices.Clone(x.names), func(m Model) bool { return len(x.byName[m.Name]) == 0 })
	known := len(x.names)
	for _, m := range is {
		if at, found := slices.BinarySearchFunc(x.names[:known], m, byName); found {
			x.names[at] = m
		} else {
			x.names = append(x.names, m)
		}
	}
	slices.SortFunc(x.names, byName)
}

func drop(lists map[string][]int32, name string, i int32) {
	if left := without(lists[name], i); len(left) > 0 {
		lists[name] = left
	} else {
		delete(lists, name)
	}
}

func add(lists map[string][]int32, name string, i int32) { lists[name] = including(lists[name], i) }

// without and including return a sorted list that differs by i, and leave list as it is.
func without(list []int32, i int32) []int32 {
	at, found := slices.BinarySearch(list, i)
	if !found {
		return list
	}
	return slices.Delete(slices.Clone(list), at, at+1)
}

func including(list []int32, i int32) []int32 {
	at, found := slices.BinarySearch(list, i)
	if found {
		return list
	}
	return slices.Insert(slices.Clone(list), at, i)
}

// Serving returns the positions, ascending, of the endpoints that are known to
// serve the model. The result is read-only.
func (s *Snapshot) Serving(model string) []int32 { return s.models.byName[model] }

// Open returns the positions, ascending, of the endpoints whose models nobody
// knows. The result is read-only.
func (s *Snapshot) Open() []int32 { return s.models.open }

// MayServe reports whether some endpoint is known to serve the model, or nobody
// knows what it serves. A request without a model may go anywhere.
func (s *Snapshot) MayServe(model string) bool {
	return model == "" || len(s.Serving(model)) > 0 || len(s.Open()) > 0
}

// Models returns all models that some endpoint is known to serve, sorted by
// name. The result is read-only.
func (s *Snapshot) Models() []Model { return s.models.names }

// ByBaseModel returns the positions, ascending, of the endpoints whose base model is known
// by the name; "": of those whose base model is not known. The result is read-only.
func (s *Snapshot) ByBaseModel(name string) []int32 { return s.models.bases[name] }

// Bases returns the base models that are known, in no order.
func (s *Snapshot) Bases() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range s.models.bases {
			if name != "" && !yield(name) {
				return
			}
		}
	}
}

// OnlyBase returns the base model of all endpoints, "" when there are several, or one is
// not known, and whether several are known.
func (s *Snapshot) OnlyBase() (name string, several bool) {
	for base := range s.models.bases {
		switch {
		case base == "":
			continue
		case name != "":
			return "", true
		}
		name = base
	}
	if len(s.ByBaseModel("")) > 0 {
		name = ""
	}
	return name, false
}

// SetModels stores the list that an endpoint's engine gave at a time, and reports
// whether it differs from the one before. The models of list need not be sorted. An
// engine that serves none of its former base models is another one: what was learned
// of the former is forgotten, and its life is over; see Renew.
func (p *Pool) SetModels(id block.EndpointID, list ModelList, at time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.current.Load()
	ep := old.ByID(int(id))
	if ep == nil {
		return false
	}
	list.Models = slices.Clone(list.Models)
	slices.SortFunc(list.Models, func(a, b Model) int { return cmp.Or(byName(a, b), strings.Compare(a.Parent, b.Parent)) })
	list.Models = slices.CompactFunc(list.Models, func(a, b Model) bool { return a.Name == b.Name })
	list.base = ""
	if i := slices.IndexFunc(list.Models, func(m Model) bool { return m.Parent == "" }); i >= 0 {
		list.base = list.Models[i].Name
	}
	if ep.models.list.Load().equal(&list) {
		ep.models.at.Store(at.UnixNano())
		return false
	}
	was, listed := ep.serves(), ep.models.list.Load() != nil
	ep.models.list.Store(&list)
	ep.models.at.Store(at.UnixNano())
	next := *old
	next.Version++
	next.models = old.models.with(int32(old.Index(ep.Address)), was, ep.serves())
	p.current.Store(&next)
	if listed && was.another(&list) {
		ep.forget(p.opts.Prior)
		p.renew(ep)
	}
	p.prune()
	return true
}

// forget drops what was learned of an engine that is another one now.
func (c *counters) forget(prior Cost) {
	c.cost.mu.Lock()
	defer c.cost.mu.Unlock()
	c.cost.reset(prior)
	c.cost.shared.Store(nil)
	c.cost.publish()
	c.slots.Set(0, time.Time{})
}
