package sim

import (
	"slices"
	"sync"
)

// adapters are the LoRA adapters that are loaded, by id from 1. Ids are not
// used again. Safe for concurrent use through the pointer inside.
type adapters struct{ *adapterTable }

type adapterTable struct {
	mu    sync.RWMutex
	names []string // by id-1; "" when unloaded
}

func newAdapters(names []string) adapters {
	return adapters{&adapterTable{names: slices.Clone(names)}}
}

// id returns the id of a loaded adapter, or 0.
func (a adapters) id(name string) uint32 {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if name == "" {
		return 0
	}
	return uint32(slices.Index(a.names, name) + 1)
}

// name returns the name of adapter id, "" for an unknown one.
func (a adapters) name(id uint32) string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if id == 0 || int(id) > len(a.names) {
		return ""
	}
	return a.names[id-1]
}

// loaded lists the names in order of loading.
func (a adapters) loaded() (names []string) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, n := range a.names {
		if n != "" {
			names = append(names, n)
		}
	}
	return names
}

// load adds an adapter; it returns false when there is one of that name.
func (a adapters) load(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.names, name) {
		return false
	}
	a.names = append(a.names, name)
	return true
}

// unload removes an adapter; it returns false when there is none.
func (a adapters) unload(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.names, name)
	if name == "" || i < 0 {
		return false
	}
	a.names[i] = ""
	return true
}
