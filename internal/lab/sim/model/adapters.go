package model

import (
	"slices"
	"sync"
)

// Adapters are the LoRA adapters that are loaded, by id from 1. Ids are not
// used again. Safe for concurrent use through the pointer inside.
type Adapters struct{ *adapterTable }

type adapterTable struct {
	mu    sync.RWMutex
	names []string // by id-1; "" when unloaded
}

// NewAdapters returns adapters of which some are loaded.
func NewAdapters(names []string) Adapters {
	return Adapters{&adapterTable{names: slices.Clone(names)}}
}

// ID returns the id of a loaded adapter, or 0.
func (a Adapters) ID(name string) uint32 {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if name == "" {
		return 0
	}
	return uint32(slices.Index(a.names, name) + 1)
}

// Name returns the name of adapter id, "" for an unknown one.
func (a Adapters) Name(id uint32) string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if id == 0 || int(id) > len(a.names) {
		return ""
	}
	return a.names[id-1]
}

// Loaded lists the names in order of loading.
func (a Adapters) Loaded() (names []string) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, n := range a.names {
		if n != "" {
			names = append(names, n)
		}
	}
	return names
}

// Load adds an adapter; it returns false when there is one of that name.
func (a Adapters) Load(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.names, name) {
		return false
	}
	a.names = append(a.names, name)
	return true
}

// Replace unloads all and loads those named.
func (a Adapters) Replace(names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.names)
	a.names = append(a.names, names...)
}

// Unload removes an adapter; it returns false when there is none.
func (a Adapters) Unload(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.names, name)
	if name == "" || i < 0 {
		return false
	}
	a.names[i] = ""
	return true
}
