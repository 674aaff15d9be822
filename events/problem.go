package events

import (
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// tellAfter is how many attempts in a row fail before a log line says so: an
// engine that starts at the same time as the picker refuses the first ones.
const tellAfter = 3

// trouble is what keeps a stream from being followed. Its methods other than
// text are called with the subscriber's mu held.
type trouble struct {
	link atomic.Pointer[string] // why there is no connection
	// unreadable is why no message can be read.
	unreadable atomic.Pointer[string]
	replay     atomic.Pointer[string] // why the last replay failed
	history    atomic.Bool            // what came before is missing, and there is no replay to ask
	dials      int                    // attempts to connect in a row that failed
	malformed  bool                   // said once
	unread     bool                   // said once
}

// text says what is wrong, "" for nothing. It takes no lock.
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

// Problem says why an endpoint's streams cannot be followed as they should be:
// no connection, no replay. It is "" when nothing is wrong or there are no
// streams, and takes no lock.
func (m *Manager) Problem(id block.EndpointID) string {
	for _, s := range m.of(id) {
		if text := s.trouble.text(); text != "" {
			return text
		}
	}
	return ""
}
