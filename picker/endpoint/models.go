package endpoint

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// ModelsFresh is how long an engine's list of models is proof that it does not
// serve a name.
const ModelsFresh = 10 * time.Second

// Model is one name by which an endpoint serves requests.
type Model struct {
	Name   string
	Parent string // the base model of a LoRA adapter; "" for the base itself and its aliases
}

// ModelList is what an engine says it serves. It is immutable.
type ModelList struct {
	Models []Model // sorted by name, no name twice
	// Rejects says that the engine is known to refuse every other name.
	Rejects bool
}

// Has reports whether the list has the name.
func (l *ModelList) Has(name string) bool {
	_, found := slices.BinarySearchFunc(l.Models, name, func(m Model, name string) int { return strings.Compare(m.Name, name) })
	return found
}

func (l *ModelList) equal(o *ModelList) bool {
	return l != nil && o != nil && l.Rejects == o.Rejects && slices.Equal(l.Models, o.Models)
}

// modelCell holds an engine's own list.
type modelCell struct {
	list atomic.Pointer[ModelList] // nil: never read
	at   atomic.Int64              // when it was read, Unix nanoseconds
}

// EngineModels returns the list that the engine gave last and when; nil when it
// never gave one.
func (c *counters) EngineModels() (*ModelList, time.Time) {
	return c.models.list.Load(), fromUnixNano(c.models.at.Load())
}

// Listed reports whether the endpoint is known to serve the model: by its
// engine's list, or while there is none, by what discovery says.
func (e *Endpoint) Listed(model string) bool {
	if l := e.models.list.Load(); l != nil {
		return l.Has(model)
	}
	return slices.Contains(e.Models, model)
}

// Refuses reports whether the endpoint is sure to refuse the model: its engine
// is of a kind that does, and gave a list without the name at most ModelsFresh
// before now.
func (e *Endpoint) Refuses(model string, now time.Time) bool {
	l := e.models.list.Load()
	return l != nil && l.Rejects && !l.Has(model) && now.UnixNano()-e.models.at.Load() <= int64(ModelsFresh)
}

// Base returns the name of the endpoint's base model, "" when it is not known:
// the first that discovery names, else the first of the engine's list that is no
// adapter.
func (e *Endpoint) Base() string {
	if len(e.Models) > 0 {
		return e.Models[0]
	}
	if l := e.models.list.Load(); l != nil {
		for _, m := range l.Models {
			if m.Parent == "" {
				return m.Name
			}
		}
	}
	return ""
}

// served calls f with every name that the endpoint is known to serve. It returns
// false when nothing is known.
func (e *Endpoint) served(f func(Model)) bool {
	if l := e.models.list.Load(); l != nil {
		for _, m := range l.Models {
			f(m)
		}
		return true
	}
	for _, name := range e.Models {
		f(Model{Name: name})
	}
	return len(e.Models) > 0
}

// modelIndex says which endpoints serve a model, so that a pool of many models
// with few endpoints each costs a decision no more than a small pool.
type modelIndex struct {
	byName map[string][]int32 // positions in Snapshot.Endpoints, ascending
	open   []int32            // those of which nothing is known
	names  []Model            // sorted; of several parents, one
}

func newModelIndex(endpoints []*Endpoint) *modelIndex {
	x := &modelIndex{byName: map[string][]int32{}}
	for i, ep := range endpoints {
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
	slices.SortFunc(x.names, func(a, b Model) int { return strings.Compare(a.Name, b.Name) })
	return x
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

// SetModels stores the list that an endpoint's engine gave at a time, and reports
// whether it differs from the one before. The models of list need not be sorted.
func (p *Pool) SetModels(id block.EndpointID, list ModelList, at time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.current.Load()
	ep := old.ByID(int(id))
	if ep == nil {
		return false
	}
	list.Models = slices.Clone(list.Models)
	slices.SortFunc(list.Models, func(a, b Model) int { return strings.Compare(a.Name, b.Name) })
	list.Models = slices.CompactFunc(list.Models, func(a, b Model) bool { return a.Name == b.Name })
	if ep.models.list.Load().equal(&list) {
		ep.models.at.Store(at.UnixNano())
		return false
	}
	ep.models.list.Store(&list)
	ep.models.at.Store(at.UnixNano())
	next := *old
	next.Version++
	next.models = newModelIndex(next.Endpoints)
	p.current.Store(&next)
	return true
}
