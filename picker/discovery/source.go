package discovery

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Source finds a pool's endpoints, and what objectives and models mean there.
// It tells its Sink what it found, whole, each time that this changed, from one
// goroutine at a time.
type Source interface {
	// Close ends the source and waits for a Update that runs; none comes after.
	Close()
	// Status returns what the source knows about itself. It is safe for
	// concurrent use.
	Status() Status
}

// Opener opens a source that tells sink. A Tell may come before it returns; a
// source that has to wait for its origin returns, and tells later.
type Opener func(sink Sink) (Source, error)

// Sink is what a source works for. Only Update is required.
type Sink struct {
	// Update is given all that there is. The callee owns it.
	Update     func(Found)
	Registerer prometheus.Registerer // nil leaves the metrics unregistered
	Log        *slog.Logger          // nil discards
}

// Found is all that a source found at one time.
type Found struct {
	Specs []endpoint.Spec // no two have one address
	// Names are the objectives and rewrites of the pool; those of the
	// configuration stand above them.
	request.Names
}

// Status is what a Source knows about itself.
type Status struct {
	From       string            `json:"from"`                 // what it reads: a path, or a kind and a name
	Endpoints  int               `json:"endpoints"`            // in the list in use
	Read       time.Time         `json:"read"`                 // when the list in use was read; zero: none was yet
	Problems   []Problem         `json:"problems,omitempty"`   // of what there is to read; the list in use is older
	Notes      []Problem         `json:"notes,omitempty"`      // of what is not in use and need not be
	Unresolved map[string]string `json:"unresolved,omitempty"` // host name -> why
	Doubled    int               `json:"doubled,omitempty"`    // entries left out since another has their address
}

// OK reports whether a list is in use, is what there is to read, and every name
// resolves.
func (s Status) OK() bool {
	return !s.Read.IsZero() && len(s.Problems) == 0 && len(s.Unresolved) == 0
}
