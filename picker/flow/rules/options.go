package rules

import "time"

// Fairness is how a band divides places among its flows.
type Fairness uint8

// Fairness policies.
const (
	// Strict has one queue for all flows of the band.
	Strict Fairness = iota
	// Places gives each flow that waits the same number of places, times its weight.
	Places
	// Work gives each flow the same predicted work over time, times its weight.
	Work
	// LeastService prefers flows that were served little of late and have waited long.
	LeastService
)

// Ordering is the order within a flow. Ties go by arrival.
type Ordering uint8

// Ordering policies.
const (
	Arrival       Ordering = iota // first come, first served
	Deadline                      // earliest end of the time that the request may wait
	LatencyTarget                 // earliest arrival + first-token target; those without one last
	ShortestFirst                 // arrival + Ageing × predicted work: nobody is passed for longer than that
)

// Ageing is how many times its own predicted work a request can be passed by shorter
// ones that came later.
const Ageing = 3

// Band is the queue of one priority.
type Band struct {
	Priority    int
	MaxBytes    int64 // 0: no bound
	MaxRequests int64 // 0: no bound
	Fairness    Fairness
	Ordering    Ordering
	Weights     map[string]float64 // by flow; 1 when absent
	Service     Service            // of LeastService
}

// Service are the parameters of LeastService.
type Service struct {
	WeightService  float64       // of little service in a flow's score
	WeightHeadWait float64       // of the wait of its head
	HalfLife       time.Duration // of service; 0: it is never forgotten
}

// Options build a Core.
type Options struct {
	MaxBytes    int64 // of all bands together; 0: no bound
	MaxRequests int64
	TTL         time.Duration // how long a request may wait while there are endpoints; 0: for ever
	EmptyTTL    time.Duration // while there is none; 0: for ever
	Bands       []Band        // band 0 is made from Default when it is not listed
	Default     Band          // template for priorities that are not listed
	Negative    Band          // template for those below 0
	Limit       UsageLimit    // nil: every band may use all places
	Evict       bool          // requests in flight of priorities below 0 make way for higher ones
}

// Outcome is what became of a request.
type Outcome uint8

// Outcomes. All but Queued are final.
const (
	Queued Outcome = iota
	Dispatched
	RefusedFull  // a limit of requests or bytes, at arrival
	RefusedEmpty // the same while there is no endpoint
	Expired      // waited as long as it may
	ExpiredEmpty // the same while there is no endpoint
	Displaced    // made way for another request, or for a limit that became lower
	Cancelled    // the client left
	Closed       // the picker stops
	Evicted      // in flight, it is to be ended for one of higher priority; Release is still due
	EvictedLate  // it was, and has not ended in time: its place counts as held
	Departed     // it goes to another cluster
	NumOutcomes  = iota
)

var outcomeNames = [NumOutcomes]string{
	"queued", "dispatched", "refused_full", "refused_no_endpoints", "expired", "expired_no_endpoints", "displaced", "cancelled", "closed", "evicted", "evicted_late", "departed",
}

// String returns the outcome as metrics and status spell it.
func (o Outcome) String() string { return outcomeNames[o] }

// Request is a request that wants a place.
type Request struct {
	Flow     string // fairness id; "" is a flow as well
	Priority int
	Bytes    int64         // held while it waits
	Permits  int64         // of the capacity that it will hold; below 1 counts as 1
	Tokens   int64         // of its prompt: what Reconfigure counts its places from
	TTL      time.Duration // at most this long; 0: as the options say
	Target   time.Duration // first-token target; 0: none
	Work     float64       // predicted seconds of an engine, by its sizes
	Endable  bool          // it can be ended in flight
}

// Handle names a request from Offer to its final outcome, or to Release when that
// is Dispatched. The zero Handle names none.
type Handle uint64

// Event is the final outcome of a request that was queued, or says that one in flight
// is to be ended.
type Event struct {
	Handle  Handle
	Outcome Outcome
}

// Gauge is what one replica tells of one flow: absolute, the last one counts.
type Gauge struct {
	Flow     string
	Priority int
	Requests int64 // that wait
	Bytes    int64 // of them
	Waiting  int64 // places that they want
	InFlight int64 // places
}

// Answer is what replicas tell beside their gauges, so that nobody must guess what others know:
// the Mark of those told just before, and which marks of others had been heard then.
type Answer struct {
	PeerMark // its own: 0 where no answer is wanted
	Marks    []PeerMark
}

// PeerMark is a mark of a replica, which is named by a number of its own.
type PeerMark struct {
	Incarnation uint64
	Mark        int64
}

// Waits reports whether the flow waits there.
func (g Gauge) Waits() bool { return g.Waiting > 0 }

// Capacity is what the pool can take.
type Capacity struct {
	Permits   int64 // in all endpoints together, as far as answers are made there
	Endpoints int   // 0: requests wait for the first one, within EmptyTTL
	// Staged pools have endpoints of their own for prompts: nobody is let go while
	// those have no room, which is Entry, in places.
	Staged bool
	Entry  int64
}
