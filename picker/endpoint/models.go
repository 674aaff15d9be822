package endpoint

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// ModelsFresh is how long an engine's model list proves that a name is not served.
const ModelsFresh = 10 * time.Second

// Model is one model name of an endpoint.
type Model struct {
	Name   string
	Parent string // the base model of a LoRA adapter; "" for the base itself and its aliases
	Root   string // source of its weights, a folder or repository name, as the engine reports it; "": unknown
	Length int    // maximum tokens of prompt and answer, as the engine reports it; 0: unknown
}

// ModelList is an engine's list of models. It is immutable.
type ModelList struct {
	Models []Model // sorted by name, unique
	// Rejects means that the engine rejects every other name.
	Rejects bool

	base string // the first that is not an adapter
}

// Has reports whether the list has the name.
func (l *ModelList) Has(name string) bool {
	_, found := l.find(name)
	return found
}

// Length returns the maximum tokens of a model's prompts and answers, 0 if unknown.
func (l *ModelList) Length(name string) int {
	if at, found := l.find(name); found {
		return l.Models[at].Length
	}
	return 0
}

func (l *ModelList) find(name string) (at int, found bool) {
	return slices.BinarySearchFunc(l.Models, name, func(m Model, name string) int { return strings.Compare(m.Name, name) })
}

func (l *ModelList) equal(o *ModelList) bool {
	return l != nil && o != nil && l.Rejects == o.Rejects && slices.Equal(l.Models, o.Models)
}

// modelCell holds an engine's own model list.
type modelCell struct {
	list atomic.Pointer[ModelList] // nil: never read
	at   atomic.Int64              // when it was read, Unix nanoseconds
}

// EngineModels returns the engine's last model list and its time; nil if none was read.
func (c *counters) EngineModels() (*ModelList, time.Time) {
	return c.models.list.Load(), fromUnixNano(c.models.at.Load())
}

// Listed reports whether the endpoint serves the model according to its engine's list or, without
// one, to discovery.
func (e *Endpoint) Listed(model string) bool {
	if l := e.models.list.Load(); l != nil {
		return l.Has(model)
	}
	return slices.Contains(e.Models, model)
}

// Refuses reports whether the endpoint is known to reject the model: the engine rejects unlisted
// names, and its list, at most ModelsFresh old, lacks the name.
func (e *Endpoint) Refuses(model string, now time.Time) bool {
	l := e.models.list.Load()
	return l != nil && l.Rejects && !l.Has(model) && now.UnixNano()-e.models.at.Load() <= int64(ModelsFresh)
}

// Base returns the name of the endpoint's base model, "" if unknown. It is the first name from
// discovery that the engine's list does not contradict. If there is none, it is the first entry of
// the list that is not an adapter.
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

// BaseModels returns the names of the endpoint's models that are not adapters, by the engine's own
// list: the base model first. It returns nil if the list is unknown.
func (e *Endpoint) BaseModels() (names []string) {
	l := e.models.list.Load()
	if l == nil {
		return nil
	}
	for _, m := range l.Models {
		if m.Parent == "" {
			names = append(names, m.Name)
		}
	}
	if i := slices.Index(names, l.base); i > 0 {
		names[0], names[i] = names[i], names[0]
	}
	return names
}

// served calls f with every known model of the endpoint. It returns false if nothing is known.
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
