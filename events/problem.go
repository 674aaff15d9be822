package events

import (
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// reportAfter is the number of consecutive failed attempts before one is logged. An engine that
// starts together with the picker refuses the first ones.
const reportAfter = 3

// trouble holds the reasons why a stream cannot be followed. Methods other than text require the
// subscriber's mu.
type failure struct {
	link atomic.Pointer[string] // why there is no connection
	// unreadable is why no message can be read.
	unreadable atomic.Pointer[string]
	replay     atomic.Pointer[string] // why the last replay failed
	history    atomic.Bool            // earlier batches are missing and there is no replay
	dials      int                    // consecutive failed connection attempts
	malformed  bool                   // already logged
	unread     bool                   // already logged
}

// text returns the problem, "" if there is none. It takes no lock.
func (t *failure) text() string {
	if why := t.link.Load(); why != nil {
		return *why
	}
	if why := t.unreadable.Load(); why != nil {
		return *why
	}
	if why := t.replay.Load(); why != nil {
		return *why
	}
	if t.history.Load() {
		return "events published before the connection are missing, and no replay port is known"
	}
	return ""
}

func (t *failure) connected() {
	t.dials = 0
	t.link.Store(nil)
}

func note(at *atomic.Pointer[string], what string, err error) {
	text := what + ": " + err.Error()
	at.Store(&text)
}

// Problem returns why an endpoint's streams cannot be followed properly, for example a missing
// connection or replay. It returns "" without a problem or streams. It takes no lock.
func (m *Manager) Problem(id block.EndpointID) string {
	for _, s := range m.of(id) {
		if text := s.failure.text(); text != "" {
			return text
		}
	}
	return ""
}

// Disconnected returns why an endpoint's streams have no connection, "" if all have one or none is
// configured. It takes no lock.
func (m *Manager) Disconnected(id block.EndpointID) string {
	for _, s := range m.of(id) {
		if why := s.failure.link.Load(); why != nil {
			return *why
		}
	}
	return ""
}
