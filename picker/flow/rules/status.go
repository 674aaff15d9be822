package rules

// Status describes a Core at one moment.
type Status struct {
	Model     string            `json:"model"` // set by who knows it
	Permits   int64             `json:"places"`
	Endpoints int               `json:"endpoints"`
	Own       int64             `json:"own_in_flight"` // places of this replica
	InFlight  int64             `json:"in_flight"`     // of all, with those that nobody accounts for
	Replicas  int               `json:"replicas"`      // that are heard, this one included
	Silent    int               `json:"silent_replicas"`
	Lost      int64             `json:"unaccounted_places"` // that engines run and no replica that is heard knows of
	Evicting  int               `json:"evicting"`           // requests of this replica that were told to end and have not yet
	Waiting   int               `json:"waiting"`
	Backlog   *float64          `json:"backlog_s,omitempty"` // seconds that the pool needs for what waits at all replicas; nil: not known yet
	Bands     []BandStatus      `json:"bands"`
	Outcomes  map[string]uint64 `json:"outcomes"`
}

// BandStatus is one priority.
type BandStatus struct {
	Priority int      `json:"priority"`
	Waiting  int      `json:"waiting"` // requests here
	Bytes    int64    `json:"bytes"`
	Others   int64    `json:"waiting_elsewhere"` // requests at other replicas
	InFlight int64    `json:"own_in_flight"`     // places
	OldestS  float64  `json:"oldest_s"`
	Flows    []Tenant `json:"flows"` // those with most waiting
}

// Tenant is one tenant.
type Tenant struct {
	Flow     string  `json:"flow"`
	Waiting  int64   `json:"waiting"`   // requests, at all replicas
	InFlight float64 `json:"in_flight"` // places, at all replicas
	Share    float64 `json:"share"`     // places that it should hold
}

// QueuePosition is how a request that waits stands.
type QueuePosition struct {
	Tenant
	Priority  int
	WaitedS   float64
	ExpectedS float64 // in all, as Expected; 0: not known
	Ahead     int     // requests of its flow that wait here and go first
	Reason    string  // why it does not go now
}
