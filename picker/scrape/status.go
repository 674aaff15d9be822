package scrape

import (
	"slices"
	"strings"
	"time"
)

// State is the poller's state of an endpoint.
type State uint8

// States.
const (
	StatePending State = iota // not read yet
	StateOK
	StateFailing // the last reading failed; an older sample may exist
)

var stateNames = [...]string{"pending", "ok", "failing"}

// String returns the state's name in metrics.
func (s State) String() string { return stateNames[s] }

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// EndpointStatus is the poller's status of one endpoint.
type EndpointStatus struct {
	Address  string        `json:"address"`
	State    State         `json:"state"`
	Fast     bool          `json:"fast"`            // read at the fast interval
	Failures int           `json:"failures"`        // consecutive
	Error    string        `json:"error,omitempty"` // of the last reading
	At       time.Time     `json:"at"`              // of the current sample; zero: none
	Took     time.Duration `json:"took"`            // the last reading
	Bytes    int           `json:"bytes"`           // of the last page
	Next     time.Time     `json:"next"`            // latest time of the next reading
	Page     Page          `json:"-"`               // the last page read
}

// Status returns the state of every endpoint, sorted by address.
func (p *Poller) Status() []EndpointStatus {
	p.mu.Lock()
	out := make([]EndpointStatus, len(p.targets))
	for i, t := range p.targets {
		out[i] = t.status
		out[i].Next = t.due
	}
	p.mu.Unlock()
	slices.SortFunc(out, func(a, b EndpointStatus) int { return strings.Compare(a.Address, b.Address) })
	return out
}
