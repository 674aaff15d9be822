package discovery

import (
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
}

// Found is the complete result of a source at one time.
type Found struct {
	Specs []endpoint.Spec // with distinct addresses
	// Names are the pool's objectives and rewrites. Those in the configuration take precedence.
	request.Names
}

// Status is the state of a Source.
type Status struct {
	From       string            `json:"from"`                 // what it reads: a path, or a kind and a name
	Endpoints  int               `json:"endpoints"`            // in the current list
	Read       time.Time         `json:"read"`                 // when the current list was read; zero: not yet
	Problems   []Problem         `json:"problems,omitempty"`   // of the latest data; the current list is older
	Invalid    []Problem         `json:"invalid,omitempty"`    // of single objects; the list is up to date without them
	Notes      []Problem         `json:"notes,omitempty"`      // about optional data that is not in use
	Unresolved map[string]string `json:"unresolved,omitempty"` // host name -> error
	Refused    int               `json:"refused,omitempty"`    // pods left out because their address is refused
	Doubled    int               `json:"doubled,omitempty"`    // entries omitted because another has their address
}

// OK reports whether the current list is up to date and every name resolves.
func (s Status) OK() bool {
	return !s.Read.IsZero() && len(s.Problems) == 0 && len(s.Unresolved) == 0
}
