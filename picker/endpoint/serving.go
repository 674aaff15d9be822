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

// modelIndex maps models to endpoints, so that in a pool with many models a decision costs no more
// than in a small pool. It is immutable. When one endpoint's list changes, unaffected parts are
// shared.
type modelIndex struct {
	byName map[string][]int32 // positions in Snapshot.Endpoints, ascending
	bases  map[string][]int32 // the same for base models; "": unknown
	open   []int32            // endpoints with unknown models
	names  []Model            // sorted; with one of several parents
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

// serves is one endpoint's contribution to the index.
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

// another reports whether a list belongs to another engine: it has none of the previous base
// models.
func (s *serves) another(list *ModelList) bool {
	return s.known && !slices.ContainsFunc(s.models, func(m Model) bool { return m.Parent == "" && list.Has(m.Name) })
}

// with returns the index after a change of the models of the endpoint at position i.
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

// rename updates the names after an endpoint has added or removed some.
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

// without and including return a copy of a sorted list without or with i. list is not changed.
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

// Serving returns the ascending positions of the endpoints known to serve the model. The result is
// read-only.
func (s *Snapshot) Serving(model string) []int32 { return s.models.byName[model] }

// Open returns the ascending positions of the endpoints with unknown models. The result is
// read-only.
func (s *Snapshot) Open() []int32 { return s.models.open }

// MayServe reports whether some endpoint serves the model or has unknown models. A request without
// a model may use any endpoint.
func (s *Snapshot) MayServe(model string) bool {
	return model == "" || len(s.Serving(model)) > 0 || len(s.Open()) > 0
}

// Models returns all known models, sorted by name. The result is read-only.
func (s *Snapshot) Models() []Model { return s.models.names }

// ByBaseModel returns the ascending positions of the endpoints with that base model; "": unknown.
// The result is read-only.
func (s *Snapshot) ByBaseModel(name string) []int32 { return s.models.bases[name] }

// Bases returns the known base models, in no order.
func (s *Snapshot) Bases() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range s.models.bases {
			if name != "" && !yield(name) {
				return
			}
		}
	}
}

// OnlyBase returns the base model if all endpoints share one, and otherwise "". several reports
// whether several base models are known.
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

// SetModels stores an engine's model list and reports whether it changed. list need not be sorted.
// An engine without any of its former base models counts as another one: learned state is
// discarded, and a new incarnation begins; see Renew.
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

// forget discards the learned state of a replaced engine.
func (c *counters) forget(prior Cost) {
	c.cost.mu.Lock()
	defer c.cost.mu.Unlock()
	c.cost.reset(prior)
	c.cost.shared.Store(nil)
	c.cost.publish()
	c.slots.Set(0, time.Time{})
	c.mark.changed()
}
