package endpoint

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"
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

	base string // the first that is no adapter
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
// the first that discovery names, unless the engine's list is without it, else the
// first of that list that is no adapter.
func (e *Endpoint) Base() string {
	l := e.models.list.Load()
	for _, name := range e.Models {
		if l == nil || l.Has(name) {
			return name
		}
	}
	if l == nil {
		return ""
	}
	return l.base
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
