// Package planted has one fault of each kind that the analyzer must find, and the same code
// without the fault.
package planted

import (
	"log/slog"
	"os"
	"sync"

	"github.com/grapevine-epp/grapevine/internal/testkit/locks/testdata/planted/other"
)

type T struct {
	mu   sync.Mutex
	log  *slog.Logger
	hook other.Hooks
	n    int
}

// LogUnder logs two calls deeper while the mutex is held.
func (t *T) LogUnder() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.step()
}

func (t *T) step() { t.logs() }

func (t *T) logs() { t.log.Info("planted") }

// LogErrorUnder logs an error while the mutex is held.
func (t *T) LogErrorUnder() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log.Error("planted")
}

// LogByDefaultUnder logs with the default logger while the mutex is held.
func (t *T) LogByDefaultUnder() {
	t.mu.Lock()
	defer t.mu.Unlock()
	slog.Warn("planted")
}

// LogAfter logs when the mutex is free.
func (t *T) LogAfter() {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
	t.quiet()
}

func (t *T) quiet() { t.log.Info("allowed") }

// ReadUnder reads a file in a closure that runs under the mutex.
func (t *T) ReadUnder() {
	t.do(func() { readFile() })
}

func (t *T) do(fn func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fn()
}

func readFile() { _, _ = os.ReadFile("planted") }

// WriteOnBranch holds the mutex on one of two ways.
func (t *T) WriteOnBranch(lock bool) {
	if lock {
		t.mu.Lock()
	}
	write()
	if lock {
		t.mu.Unlock()
	}
}

func write() { _ = os.WriteFile("planted", nil, 0o600) }

// Spawn starts a goroutine under the mutex: it does not run under it.
func (t *T) Spawn() {
	t.mu.Lock()
	defer t.mu.Unlock()
	go remove()
}

func remove() { _ = os.Remove("planted") }

// CallUnder calls into another package.
func (t *T) CallUnder() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hook.Changed(t.n)
}
