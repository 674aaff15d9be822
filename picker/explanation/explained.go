package explanation

import (
	"time"

	"github.com/grapevine-epp/grapevine/picker/gauge"
)

// Explanation is one decision in full. It contains no prompt text. Times are in milliseconds.
type Explanation struct {
	// Replica is the replica that decided, and Decision its identifier of the decision; "" in dry
	// runs. Number is the decision's number at that replica.
	Replica  string `json:"replica,omitempty"`
	Decision string `json:"decision,omitempty"`
	Number   uint64 `json:"-"`

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
	Margin      float64           `json:"margin"` // total of the choice minus the runner-up's
	Headers     map[string]string `json:"headers,omitempty"`
	Stages      []Stage           `json:"stages,omitempty"`
	Predicted   Time              `json:"predicted"`
	Omitted     int               `json:"omitted_candidates,omitempty"`
	Candidates  []Candidate       `json:"candidates"`
	Profiles    []Profile         `json:"profiles"`
	Health      []Health          `json:"health,omitempty"`   // endpoints that were not healthy
	Avoided     []Avoided         `json:"avoided,omitempty"`  // endpoints that were not candidates
	Clusters    []Cluster         `json:"clusters,omitempty"` // this cluster and remote ones, if those were considered
	Queue       *Queue            `json:"queue,omitempty"`    // if it is waiting, or was refused
	WarmUp      *WarmUp           `json:"warm_up,omitempty"`  // where the prompt was also sent
	Refused     string            `json:"refused,omitempty"`  // why it was not placed
	Outcome     *Outcome          `json:"outcome,omitempty"`
}

// Queue is the state of a waiting request, or the result for a refused one.
type Queue struct {
	Outcome  string  `json:"outcome"` // queued, or a label of grapevine_flow_outcomes_total
	Flow     string  `json:"flow"`
	Waited   float64 `json:"waited_ms"`
	Reason   string  `json:"reason,omitempty"` // why it is waiting
	Expected float64 `json:"expected_ms,omitempty"`

	// For a waiting request.
	Ahead        int     `json:"ahead"`          // requests of its flow that wait at this replica and go first
	FlowWaiting  int64   `json:"flow_waiting"`   // requests of its flow, at all replicas
	FlowInFlight float64 `json:"flow_in_flight"` // permits
	FlowShare    float64 `json:"flow_share"`     // permits that its flow should hold
	InFlight     int64   `json:"in_flight"`      // permits of the pool
	Permits      int64   `json:"places"`
}

// Prompt is how a prompt was matched.
type Prompt struct {
	Space string `json:"space"` // text, chunks or none
	Bytes int    `json:"bytes"` // of the rendered prompt, or of the raw one for chunks
}

// Time is the parts of a predicted time to first token, and the cost to other requests.
type Time struct {
	TTFT   float64 `json:"ttft_ms"`
	Wait   float64 `json:"wait_ms"`
	Own    float64 `json:"own_ms"`
	Base   float64 `json:"base_ms"`
	Fetch  float64 `json:"fetch_ms,omitempty"` // until blocks held elsewhere have arrived
	Load   float64 `json:"load_ms,omitempty"`  // until other resources, such as the adapter, are loaded
	Others float64 `json:"others_ms"`
	Zone   float64 `json:"zone_ms,omitempty"` // price of leaving the replica's zone
}

// Candidate is the data about one candidate.
type Candidate struct {
	Endpoint  string         `json:"endpoint"`
	Name      string         `json:"name,omitempty"`
	Matched   map[string]int `json:"matched_tokens"`  // by tier
	Held      float64        `json:"weighted_tokens"` // tokens weighted by their tier
	Blocks    int            `json:"matched_blocks"`
	Load      Load           `json:"load"`
	Predicted *Time          `json:"predicted,omitempty"`
}

// Load is the load of one candidate: the load tracker of all replicas, and the engine's gauges with
// their age.
type Load struct {
	Requests      int64   `json:"requests"`
	Waiting       int64   `json:"waiting"`
	PrefillTokens int64   `json:"prefill_tokens"`
	Tokens        int64   `json:"tokens"`
	Rate          float64 `json:"dispatch_rate"`
	Pairs         float64 `json:"prefill_pairs,omitempty"`  // pairs of tokens that attention must still compute
	Context       int64   `json:"context_tokens,omitempty"` // of decoding requests
	Busy          float64 `json:"prefill_share,omitempty"`  // share of the last minutes spent on prefills
	GaugeAge      float64 `json:"gauge_age_ms"`             // -1: never sampled
	gauge.Values
	Ranks int `json:"ranks,omitempty"` // number of ranks summed here, if more than one; the price is for one rank
}

// Profile is the result of one profile.
type Profile struct {
	Profile string   `json:"profile"`
	Picked  []string `json:"picked"`
	Rows    []Row    `json:"rows"`
}

// Row is one candidate in one profile.
type Row struct {
	Endpoint string  `json:"endpoint"`
	Dropped  string  `json:"dropped_by,omitempty"` // the filter that removed it, or its role
	Scores   []Score `json:"scores,omitempty"`
	Total    float64 `json:"total"`
}

// Score is one scorer's result for one candidate.
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
	Against      string  `json:"against,omitempty"`     // evidence against the endpoint that served it
	TTFT         float64 `json:"ttft_ms,omitempty"`
	Took         float64 `json:"took_ms"`
	PromptTokens int     `json:"prompt_tokens,omitempty"`
	CachedTokens int     `json:"cached_tokens,omitempty"`
	OutputTokens int     `json:"output_tokens,omitempty"`
}

// Stage is the decision about one stage.
type Stage struct {
	Stage   string `json:"stage"`
	Outcome string `json:"outcome"`
	// Endpoint is the first choice for the stage, or "".
	Endpoint string `json:"endpoint,omitempty"`
	Missing  int    `json:"missing_tokens"` // prompt tokens that the serving endpoint lacks
	// Revision is the serving endpoint's, to which the stage is limited, or "".
	Revision string `json:"revision,omitempty"`
	// Whole and Split are the compared prices, in milliseconds.
	Whole float64 `json:"whole_ms,omitempty"`
	Split float64 `json:"split_ms,omitempty"`
}

// WarmUp is an endpoint to which the picker itself also sent the prompt.
type WarmUp struct {
	Endpoint string `json:"endpoint"`
	Missing  int    `json:"missing_tokens"` // prompt tokens that it lacked
}

// Health is an endpoint that was not healthy at the time.
type Health struct {
	Endpoint string  `json:"endpoint"`
	State    string  `json:"state"`
	Since    float64 `json:"since_s"` // seconds before the decision
	Evidence string  `json:"evidence"`
	BackBy   string  `json:"back_by,omitempty"`
	// Used means that it could be chosen anyway: at random while it recovers, or because most of
	// the pool looks unhealthy.
	Used bool `json:"used"`
}

// Avoided is an endpoint that was not a candidate.
type Avoided struct {
	Endpoint string  `json:"endpoint"`
	Reason   string  `json:"why"`
	More     float64 `json:"more_s,omitempty"` // for how much longer, if known
}

// Reasons of Avoided.
const (
	AvoidedHealth       = "health"       // ejected, or suspect or recovering and not drawn; see Health
	AvoidedFull         = "full"         // its engine rejected a request for lack of capacity
	AvoidedModelFails   = "model_fails"  // it fails this model's requests but answers others
	AvoidedClientFails  = "client_fails" // it fails this client's requests but answers others
	AvoidedKindFails    = "kind_fails"   // it fails requests of this kind and size but answers others
	AvoidedPlaces       = "places"       // it has its maximum number of requests
	AvoidedPrompt       = "prompt"       // the prompt failed at several engines, and more work would be lost here if the engine crashed
	AvoidedSubset       = "subset"       // the proxy does not allow it
	AvoidedConversation = "conversation" // another engine stores the conversation
	AvoidedRole         = "role"         // it does not generate responses by itself
	AvoidedModel        = "model"        // it does not serve the model
)

// Cluster is the price of one cluster, or why it was not a candidate.
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
