package rules

// Status is the state of a Core at one moment.
type Status struct {
	Model     string            `json:"model"` // set by the caller
	Permits   int64             `json:"places"`
	Endpoints int               `json:"endpoints"`
	Own       int64             `json:"own_in_flight"` // permits of this replica
	InFlight  int64             `json:"in_flight"`     // total, including unaccounted permits
	Replicas  int               `json:"replicas"`      // live ones, including this one
	Silent    int               `json:"silent_replicas"`
	Lost      int64             `json:"unaccounted_places"` // permits that engines run and no live replica accounts for
	Evicting  int               `json:"evicting"`           // requests of this replica that were evicted and have not ended
	Waiting   int               `json:"waiting"`
	Backlog   *float64          `json:"backlog_s,omitempty"` // seconds of the pool's work waiting at all replicas; nil: unknown yet
	Bands     []BandStatus      `json:"bands"`
	Outcomes  map[string]uint64 `json:"outcomes"`
}

// BandStatus is the state of one priority.
type BandStatus struct {
	Priority int      `json:"priority"`
	Waiting  int      `json:"waiting"` // requests at this replica
	Bytes    int64    `json:"bytes"`
	Others   int64    `json:"waiting_elsewhere"` // requests at other replicas
	InFlight int64    `json:"own_in_flight"`     // permits
	OldestS  float64  `json:"oldest_s"`
	Flows    []Tenant `json:"flows"` // flows with the most waiting requests
}

// Tenant is the state of one flow.
type Tenant struct {
	Flow     string  `json:"flow"`
	Waiting  int64   `json:"waiting"`   // requests, at all replicas
	InFlight float64 `json:"in_flight"` // places, at all replicas
	Share    float64 `json:"share"`     // permits that it should hold
}

// QueuePosition is the state of a waiting request.
type QueuePosition struct {
	Tenant
	Priority  int
	WaitedS   float64
	ExpectedS float64 // in total, as Expected; 0: unknown
	Ahead     int     // requests of its flow that wait here and go first
	Reason    string  // why it is waiting
}
