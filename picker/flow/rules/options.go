package rules

import "time"

// Fairness is how a band divides permits among its flows.
type Fairness uint8

// Fairness policies.
const (
	// Strict has one queue for all flows of the band.
	Strict Fairness = iota
	// Places gives each waiting flow the same number of permits, times its weight.
	Places
	// Work gives each flow the same predicted work over time, times its weight.
	Work
	// LeastService prefers flows with little recent service and long waits.
	LeastService
	// MostTurns prefers flows with many dispatched requests, and long waits.
	MostTurns
)

// Ordering is the order within a flow. Ties are broken by arrival.
type Ordering uint8

// Ordering policies.
const (
	Arrival       Ordering = iota // first come, first served
	Deadline                      // earliest deadline
	LatencyTarget                 // earliest arrival + first-token target; requests without one last
	ShortestFirst                 // arrival + Ageing × predicted work, so that no request is overtaken for longer than that
)

// Ageing is the multiple of a request's predicted work for which shorter, later requests can
// overtake it.
const Ageing = 3

// Band is the queue of one priority.
type Band struct {
	Priority    int
	MaxBytes    int64 // 0: no limit
	MaxRequests int64 // 0: no limit
	Fairness    Fairness
	Ordering    Ordering
	Weights     map[string]float64 // by flow; default 1
	Service     Service            // for LeastService and MostTurns
	TTL         time.Duration      // longest wait while there are endpoints; 0: as in Options; below 0: unlimited
}

// Service are the parameters of LeastService, and of MostTurns.
type Service struct {
	WeightService  float64       // of little service in a flow's score
	WeightHeadWait float64       // of its head's wait
	HalfLife       time.Duration // of service; 0: no decay

	WeightTime float64       // MostTurns: turns that a second of waiting is worth
	Keep       time.Duration // MostTurns: turns are forgotten after this idle time; 0: as other flows
}

// Options configure a Core.
type Options struct {
	MaxBytes    int64 // total of all bands; 0: no limit
	MaxRequests int64
	TTL         time.Duration // longest wait while there are endpoints; 0: unlimited
	EmptyTTL    time.Duration // longest wait while there are none; 0: unlimited
	Bands       []Band        // band 0 is created from Default unless it is listed
	Default     Band          // template for unlisted priorities
	Negative    Band          // template for unlisted priorities below 0
	Limit       UsageLimit    // nil: every band may use all permits
	Evict       bool          // in-flight requests with priorities below 0 are evicted for higher ones
}

// Outcome is the result of a request.
type Outcome uint8

// Outcomes. All but Queued are final.
const (
	Queued Outcome = iota
	Dispatched
	RefusedFull  // at a limit of requests or bytes, on arrival
	RefusedEmpty // the same while there is no endpoint
	Expired      // waited for its TTL
	ExpiredEmpty // the same while there is no endpoint
	Displaced    // removed for another request, or for a lowered limit
	Cancelled    // the client left
	Closed       // the picker is shutting down
	Evicted      // in flight, to be ended for a higher priority; Release is still required
	EvictedLate  // evicted but did not end in time: its permits still count as held
	Departed     // moved to another cluster
	NumOutcomes  = iota
)

var outcomeNames = [NumOutcomes]string{
	"queued", "dispatched", "refused_full", "refused_no_endpoints", "expired", "expired_no_endpoints", "displaced", "cancelled", "closed", "evicted", "evicted_late", "departed",
}

// String returns the outcome for metrics and status.
func (o Outcome) String() string { return outcomeNames[o] }

// Request is a request for permits.
type Request struct {
	Flow     string // fairness ID; "" is a flow too
	Priority int
	Bytes    int64         // held in memory while it waits
	Permits  int64         // permits that it will hold; at least 1
	Tokens   int64         // prompt tokens, from which Reconfigure recomputes its permits
	TTL      time.Duration // longest wait; 0: from the options
	Target   time.Duration // first-token target; 0: none
	Waited   time.Duration // before it was offered, at a proxy or another replica; orders requests of one flow
	Work     float64       // predicted engine seconds, by size
	Endable  bool          // it can be evicted
}

// Handle identifies a request from Offer to its final outcome, or to Release if that is Dispatched.
// Zero is not a valid handle.
type Handle uint64

// Event is the final outcome of a queued request, or the eviction of an in-flight one.
type Event struct {
	Handle  Handle
	Outcome Outcome
}

// Gauge is one replica's state of one flow: absolute, the latest one counts.
type Gauge struct {
	Flow     string
	Priority int
	Requests int64 // waiting
	Bytes    int64 // of waiting requests
	Waiting  int64 // permits waited for
	InFlight int64 // permits held
}

// Answer is sent with gauges and acknowledges received ones. It has the Mark of the gauges just
// sent, and the marks of other replicas received by then.
type Answer struct {
	PeerMark // its own; 0 if no acknowledgment is needed
	Marks    []PeerMark
}

// PeerMark is a mark of a replica, identified by its incarnation.
type PeerMark struct {
	Incarnation uint64
	Mark        int64
}

// Waits reports whether the flow has waiting requests there.
func (g Gauge) Waits() bool { return g.Waiting > 0 }

// Capacity is the pool's capacity.
type Capacity struct {
	Permits   int64 // total of the endpoints that generate responses
	Endpoints int   // 0: requests wait for the first one, within EmptyTTL
	// Staged pools have separate endpoints for prompts. Requests are only dispatched while those
	// have room, which is Entry, in permits.
	Staged bool
	Entry  int64
}
