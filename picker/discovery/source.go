package discovery

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Source finds a pool's endpoints, objectives and model rewrites. It passes everything to its Sink
// after each change, from one goroutine at a time.
type Source interface {
	// Close stops the source and waits for a running Update; none follows.
	Close()
	// Status returns the source's status. Safe for concurrent use.
	Status() Status
}

// Opener opens a source that updates sink, possibly before it returns. A source that waits for its
// data returns and updates later.
type Opener func(sink Sink) (Source, error)

// Sink receives a source's results. Only Update is required.
type Sink struct {
	// Update receives the complete result. The callee owns it.
	Update     func(Found)
	Registerer prometheus.Registerer // nil leaves the metrics unregistered
	Log        *slog.Logger          // nil discards
	// Writes reports whether this replica writes to the source's objects for its group; nil: yes.
	// It may change at any time. The other replicas write only changes that are not written after a
	// delay.
	Writes func() bool
}

// Found is the complete result of a source at one time.
type Found struct {
	Specs []endpoint.Spec // with distinct addresses
	// Names are the pool's objectives and rewrites. Those in the configuration take precedence.
	request.Names
}

// State reports whether the list in use is the source's list, and if not, why.
type State string

// States, each with another remedy.
const (
	StateCurrent    State = ""           // the list in use is the source's list
	StateUnread     State = "unread"     // nothing was read yet, and nothing failed
	StateUnreadable State = "unreadable" // the source cannot be read; the known list stays
	StateForbidden  State = "forbidden"  // a permission is missing
	StateInvalid    State = "invalid"    // the source is invalid; the known list stays
	StateMissing    State = "missing"    // the pool does not exist
	StateHeld       State = "held"       // a change is on hold; the known list stays
	StateEmpty      State = "empty"      // the source was read and selects no endpoint
)

// stateText introduces the problem of a state, without a trailing colon.
var stateText = map[State]string{
	StateUnreadable: "the list of endpoints is older than its source, which cannot be read",
	StateForbidden:  "a permission to read the endpoints is missing",
	StateInvalid:    "the list of endpoints is older than its source, which is invalid",
	StateMissing:    "the source of endpoints does not exist",
	StateHeld:       "the list of endpoints is older than its source, a change is held",
	StateEmpty:      "no endpoint is selected",
}

// Status is the state of a Source.
type Status struct {
	From       string            `json:"from"`                 // its input: a path, or a kind and a name
	State      State             `json:"state,omitempty"`      // of the list in use
	Origin     string            `json:"origin,omitempty"`     // of the list in use, if that is not the source: a peer or a file
	Endpoints  int               `json:"endpoints"`            // in the current list
	Read       time.Time         `json:"read"`                 // when the current list was read; zero: not yet
	Problems   []Problem         `json:"problems,omitempty"`   // of the latest data; the current list is older
	Invalid    []Problem         `json:"invalid,omitempty"`    // of single objects; the list is up to date without them
	Notes      []Problem         `json:"notes,omitempty"`      // about optional data that is not in use
	Unresolved map[string]string `json:"unresolved,omitempty"` // host name -> error
	Refused    int               `json:"refused,omitempty"`    // pods left out because their address is refused
	Doubled    int               `json:"doubled,omitempty"`    // entries omitted because another has their address
	// MissingRights are missing rules of the API server without which the list stays current.
	MissingRights []string `json:"missing_rights,omitempty"`
}

// Reason describes why the list in use is not current or is empty; "" if it is neither.
func (s *Status) Reason() string {
	text := stateText[s.State]
	switch {
	case s.State == StateUnread || s.State == StateCurrent && s.Read.IsZero():
		return s.From + " has not been read yet"
	case len(s.Problems) > 0:
		return cmp.Or(text, stateText[StateUnreadable]) + ": " + s.Problems[0].String()
	case len(s.Unresolved) > 0:
		return fmt.Sprintf("%d host names do not resolve", len(s.Unresolved))
	case s.State == StateEmpty && len(s.Notes) > 0:
		return text + ": " + s.Notes[len(s.Notes)-1].String()
	case s.Endpoints == 0:
		return s.From + " names no endpoint"
	}
	return text
}

// OK reports whether the current list is up to date and every name resolves.
func (s Status) OK() bool {
	return !s.Read.IsZero() && len(s.Problems) == 0 && len(s.Unresolved) == 0
}
