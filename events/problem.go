package events

import (
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// tellAfter is the number of consecutive failed attempts before one is logged. An engine that
// starts together with the picker refuses the first ones.
const tellAfter = 3

// trouble holds the reasons why a stream cannot be followed. Methods other than text require the
// subscriber's mu.
type trouble struct {
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
func (t *trouble) text() string {
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
		return "what it published before it was heard is not known, and no replay port is"
	}
	return ""
}

func (t *trouble) connected() {
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
		if text := s.trouble.text(); text != "" {
			return text
		}
	}
	return ""
}
