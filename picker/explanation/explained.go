package explanation

import "time"

// Explanation is one decision in full, for people and for JSON. It holds no
// prompt text. Times are in milliseconds.
type Explanation struct {
	RequestID   string            `json:"request_id"`
	At          time.Time         `json:"at"`
	Model       string            `json:"model"`
	Target      string            `json:"target,omitempty"`
	InputTokens int               `json:"input_tokens"`
	Priority    int               `json:"priority"`
	Prompt      Prompt            `json:"prompt"`
	Choice      string            `json:"choice"`
	Fallbacks   []string          `json:"fallbacks,omitempty"`
	RunnerUp    string            `json:"runner_up,omitempty"`
	Margin      float64           `json:"margin"` // total of the choice minus that of the runner-up
	Headers     map[string]string `json:"headers,omitempty"`
	Stages      []Stage           `json:"stages,omitempty"`
	Predicted   Time              `json:"predicted"`
	Omitted     int               `json:"omitted_candidates,omitempty"`
	Candidates  []Candidate       `json:"candidates"`
	Profiles    []Profile         `json:"profiles"`
	Health      []Health          `json:"health,omitempty"`   // endpoints that were not healthy
	Avoided     []Avoided         `json:"avoided,omitempty"`  // endpoints that were no candidates
	Clusters    []Cluster         `json:"clusters,omitempty"` // this one and others, where others were asked
	Queue       *Queue            `json:"queue,omitempty"`    // where it waits for a place, or got none
	WarmUp      *WarmUp           `json:"warm_up,omitempty"`  // to whom the prompt was sent as well
	Refused     string            `json:"refused,omitempty"`  // why it was not placed
	Outcome     *Outcome          `json:"outcome,omitempty"`
}

// Queue is how a request stands that waits for a place, or how it ended that got none.
type Queue struct {
	Outcome  string  `json:"outcome"` // queued, or as grapevine_flow_outcomes_total has it
	Flow     string  `json:"flow"`
	Waited   float64 `json:"waited_ms"`
	Reason   string  `json:"reason,omitempty"` // why it does not go now
	Expected float64 `json:"expected_ms,omitempty"`

	// Of one that waits.
	Ahead        int     `json:"ahead"`          // requests of its flow that wait at this replica and go first
	FlowWaiting  int64   `json:"flow_waiting"`   // requests of its flow, at all replicas
	FlowInFlight float64 `json:"flow_in_flight"` // places
	FlowShare    float64 `json:"flow_share"`     // places that its flow should hold
	InFlight     int64   `json:"in_flight"`      // places of the pool
	Permits      int64   `json:"places"`
}

// Prompt says how a prompt was matched.
type Prompt struct {
	Space string `json:"space"` // text, chunks or none
	Bytes int    `json:"bytes"` // of the rendered prompt, or of the raw one for chunks
}

// Time are the parts of a predicted time to first token, and what the
// request costs others.
type Time struct {
	TTFT   float64 `json:"ttft_ms"`
	Wait   float64 `json:"wait_ms"`
	Own    float64 `json:"own_ms"`
	Base   float64 `json:"base_ms"`
	Fetch  float64 `json:"fetch_ms,omitempty"` // until blocks that others hold are there
	Others float64 `json:"others_ms"`
}

// Candidate is what was known of one candidate.
type Candidate struct {
	Endpoint  string         `json:"endpoint"`
	Name      string         `json:"name,omitempty"`
	Matched   map[string]int `json:"matched_tokens"`  // by tier
	Held      float64        `json:"weighted_tokens"` // what the tokens count for, by the weights of their tiers
	Blocks    int            `json:"matched_blocks"`
	Load      Load           `json:"load"`
	Predicted *Time          `json:"predicted,omitempty"`
}

// Load is the load of one candidate: the book of all replicas, and
// the engine's gauges with their age.
type Load struct {
	Requests      int64   `json:"requests"`
	Waiting       int64   `json:"waiting"`
	PrefillTokens int64   `json:"prefill_tokens"`
	Tokens        int64   `json:"tokens"`
	Rate          float64 `json:"dispatch_rate"`
	GaugeAge      float64 `json:"gauge_age_ms"` // -1: never sampled
	EngineWaiting int     `json:"engine_waiting"`
	EngineRunning int     `json:"engine_running"`
	KVUse         float64 `json:"kv_use"`
	Ranks         int     `json:"ranks,omitempty"` // that all this is of together, where the engine has several: the price is that of one
}

// Profile is what one profile made of the candidates.
type Profile struct {
	Profile string   `json:"profile"`
	Picked  []string `json:"picked"`
	Rows    []Row    `json:"rows"`
}

// Row is one candidate in one profile.
type Row struct {
	Endpoint string  `json:"endpoint"`
	Dropped  string  `json:"dropped_by,omitempty"` // the filter that left it out, or role
	Scores   []Score `json:"scores,omitempty"`
	Total    float64 `json:"total"`
}

// Score is one scorer's word on one candidate.
type Score struct {
	Scorer string  `json:"scorer"`
	Raw    float64 `json:"raw"`
	Weight float64 `json:"weight"`
}

// Outcome is how the request ended.
type Outcome struct {
	Status       int     `json:"status"`
	Served       string  `json:"served"`
	Failed       string  `json:"failed_over,omitempty"` // the endpoint that failed first, and how
	Against      string  `json:"against,omitempty"`     // what the end says against the endpoint that served
	TTFT         float64 `json:"ttft_ms,omitempty"`
	Took         float64 `json:"took_ms"`
	PromptTokens int     `json:"prompt_tokens,omitempty"`
	CachedTokens int     `json:"cached_tokens,omitempty"`
	OutputTokens int     `json:"output_tokens,omitempty"`
}

// Stage is what was decided about one stage.
type Stage struct {
	Stage   string `json:"stage"`
	Outcome string `json:"outcome"`
	// Endpoint is the first choice for the stage, "" when there is none.
	Endpoint string `json:"endpoint,omitempty"`
	Missing  int    `json:"missing_tokens"` // prompt tokens that the endpoint that serves does not hold
	// Whole and Split are the prices that were compared, in milliseconds.
	Whole float64 `json:"whole_ms,omitempty"`
	Split float64 `json:"split_ms,omitempty"`
}

// WarmUp is an endpoint to which the prompt was sent as well, by a request of the picker's own.
type WarmUp struct {
	Endpoint string `json:"endpoint"`
	Missing  int    `json:"missing_tokens"` // prompt tokens that it did not hold
}

// Health is an endpoint that was not healthy at the decision.
type Health struct {
	Endpoint string  `json:"endpoint"`
	State    string  `json:"state"`
	Since    float64 `json:"since_s"` // before the decision
	Evidence string  `json:"evidence"`
	BackBy   string  `json:"back_by,omitempty"`
	// Used says that it could be chosen nevertheless: by lot, while it returns, or
	// because most of the pool looks sick.
	Used bool `json:"used"`
}

// Avoided is an endpoint that was no candidate, or was left out of them before any profile ran.
type Avoided struct {
	Endpoint string  `json:"endpoint"`
	Reason   string  `json:"why"`
	More     float64 `json:"more_s,omitempty"` // for how much longer, where that is known
}

// Reasons of Avoided.
const (
	AvoidedHealth       = "health"       // out, or a suspect or returning and not drawn; see Health
	AvoidedFull         = "full"         // its engine refused a request for want of room
	AvoidedModelFails   = "model_fails"  // it fails the requests of this model, and answers others
	AvoidedPlaces       = "places"       // it has as many requests as it is to have
	AvoidedPrompt       = "prompt"       // more would be lost there if the engine died of the prompt, which failed at several
	AvoidedSubset       = "subset"       // the proxy does not allow it
	AvoidedConversation = "conversation" // another engine keeps what the request goes on with
	AvoidedRole         = "role"         // it answers no requests by itself
	AvoidedModel        = "model"        // it does not serve the model
)

// Cluster is what one cluster's price was made of, or why it was no candidate.
type Cluster struct {
	Cluster   string  `json:"cluster"`
	Gateway   string  `json:"gateway,omitempty"`
	Result    string  `json:"result"`
	Price     float64 `json:"price_ms,omitempty"`
	RoundTrip float64 `json:"round_trip_ms,omitempty"`
	Egress    float64 `json:"egress_ms,omitempty"`
	Late      float64 `json:"late_ms,omitempty"`
	Held      int     `json:"held_tokens,omitempty"`
	Age       float64 `json:"age_ms,omitempty"`
	Predicted Time    `json:"predicted"`
}
