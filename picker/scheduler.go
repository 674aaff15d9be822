package picker

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/outcomes"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
	"github.com/grapevine-epp/grapevine/picker/sizing"
)

var (
	errNoPool  = errors.New("picker: options: a pool is required")
	errNoRules = errors.New("picker: options: rules with a profile handler are required")
)

// Rules are the part of the configuration that the scheduler uses. They are immutable and replaced
// as a whole.
type Rules struct {
	Handler cycle.ProfileHandler
	Names   request.Names // meaning of objectives and models
	// Sessions lists where requests carry their session key. The first one present overrides the
	// result of request.Parse.
	Sessions []request.SessionSource
	Tiers    *cycle.TierWeights // nil means DefaultTiers
	// Admit rejects a request before it is dispatched with a *request.Error; nil admits all.
	Admit func(c *cycle.Cycle) error
	// Answer returns response headers for a request dispatched to the candidate chosen (see
	// Cycle.All); nil: none.
	Answer func(c *cycle.Cycle, chosen int32) []request.HeaderSet
	// Urgency returns the engine priority of a request. endpoints are its possible destinations,
	// and own is its expected prefill time in seconds. ok is false if no priority is sent. nil:
	// never.
	Urgency func(c *cycle.Cycle, endpoints []string, own float64) (priority int64, ok bool)
	// Propagates means that Urgency is the objective's priority, so short requests do not go first.
	Propagates bool
	// Pull returns the candidate from which the engine that computes the prompt may fetch blocks, or
	// −1; nil: none.
	Pull func(c *cycle.Cycle) int32
}

// Options configures a Scheduler. Pool and Rules are required.
type Options struct {
	Pool  *endpoint.Pool
	Rules *Rules

	// Matcher returns which endpoint holds which prompt; nil disables prefix matching.
	Matcher Matcher
	// Prompts computes the data for prompt matching; nil keeps the estimates of request.Parse.
	Prompts Prompts
	// Gate queues requests until there is capacity; nil admits all at once.
	Gate Gate
	// RemoteClusters connects remote clusters; nil: there are none.
	RemoteClusters RemoteClusters
	// WorkTimeout bounds the work of a decision, excluding waits at the Gate. After it, only load
	// counts. It must be shorter than the proxy's timeout. 0 means DefaultWorkTimeout.
	WorkTimeout time.Duration
	// Slow is called with the time of each decision that took SlowDecision or longer, excluding
	// waits at the Gate. It must not block. 0 disables it.
	Slow         func(took time.Duration)
	SlowDecision time.Duration
	// Lists refreshes the engines' model lists; nil: they are not refreshed.
	Lists Lists
	// PlaceUnknown dispatches requests for models that no endpoint serves; false rejects them with
	// request.ReasonModelNotFound.
	PlaceUnknown bool
	// RefuseKillers rejects prompts that were in flight at two engines when they died, without a
	// success since, for two minutes. With or without it, prompts that failed at several endpoints
	// or were in flight at a death are not retried, and are sent to the endpoint with the fewest
	// running answers.
	RefuseKillers bool
	// WarmUps sends prompts to additional endpoints to warm their caches; the zero value disables
	// it.
	WarmUps WarmUps
	// Blame records prompts that fail; nil creates a new record.
	Blame *health.Prompts
	// Sessions maps sessions to endpoints; nil creates a new table.
	Sessions *sessions.Table

	// SampleBodies is the share of responses whose body the scheduler requests once an endpoint has
	// enough samples. From bodies it learns first-token times and cached tokens. 0 means 1 in 20;
	// negative means none.
	SampleBodies float64
	// Continuations is the maximum number of endpoints named to the sidecar for the continuation of a
	// stream after the death of its engine. 0 names none.
	Continuations int
	// Records limits the decisions kept for explain. The zero value keeps the last 256, and
	// negative Bytes keep none.
	Records Retention
	// Seed makes tie-breaking and sampling repeatable; 0 draws a random one.
	Seed uint64

	// Sizing samples ended requests; nil: none.
	Sizing *sizing.Meter

	Registerer prometheus.Registerer // nil leaves the metrics unregistered
	Log        *slog.Logger          // nil discards
	Now        func() time.Time      // nil means the monotonic clock
}

// DefaultWorkTimeout bounds the work of a decision.
const DefaultWorkTimeout = time.Second

const (
	defaultSample = 0.05
	enoughSamples = 12 // below this number of samples, every response of an endpoint is requested
	mostSamples   = 64 // maximum requested responses of an endpoint that yield no samples
)

// Scheduler is the Chooser of the server. It combines profiles, load tracking, records and
// learning. It starts no goroutine.
type Scheduler struct {
	opts       Options
	rules      atomic.Pointer[Rules]
	records    *Records
	metrics    *metrics
	match      cycle.Match // of the Matcher; nil without one
	programs   ProgramGate // the Gate, if it is one
	requests   atomic.Uint64
	unseen     endpoint.Unseen
	remoteLoad endpoint.LoadTracker // of requests sent to remote clusters

	overruns [overrunSlots]overruns // by model
	retries  health.RetryLimit
	prompts  *health.Prompts
	lengths  health.Lengths // of sampled answers
	clients  health.Prompts // clients whose requests were declined, by client and model; not shared

	modelless struct {
		total atomic.Uint64 // requests
		n     atomic.Int32  // number of logged paths
		paths sync.Map
	}
}

// New returns a scheduler. It returns an error without a pool or rules.
func New(o Options) (*Scheduler, error) {
	if o.Pool == nil {
		return nil, errNoPool
	}
	if o.Rules == nil || o.Rules.Handler == nil {
		return nil, errNoRules
	}
	if o.Blame == nil {
		o.Blame = new(health.Prompts)
	}
	if o.Sessions == nil {
		o.Sessions = sessions.New(0)
	}
	if o.SampleBodies == 0 {
		o.SampleBodies = defaultSample
	}
	if o.Records == (Retention{}) {
		o.Records = Retention{Most: 256, Bytes: 64 << 20}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Gate == nil {
		o.Gate = openGate{}
	}
	if o.WorkTimeout <= 0 {
		o.WorkTimeout = DefaultWorkTimeout
	}
	if o.Now == nil {
		o.Now = monotime.Now
	}
	if o.Seed == 0 {
		o.Seed = uint64(o.Now().UnixNano())
	}
	s := &Scheduler{opts: o, records: newRecords(o.Records), prompts: o.Blame}
	s.programs, _ = o.Gate.(ProgramGate)
	if o.Matcher != nil {
		s.match = o.Matcher.Match
	}
	var err error
	if s.metrics, err = newMetrics(o.Registerer, o.Pool); err != nil {
		return nil, err
	}
	s.rules.Store(o.Rules)
	return s, nil
}

// SetRules replaces the rules. Decisions in progress use the old ones.
func (s *Scheduler) SetRules(r *Rules) error {
	if r == nil || r.Handler == nil {
		return errNoRules
	}
	s.rules.Store(r)
	return nil
}

// Rewrites reports whether models are rewritten by the name in the body.
func (s *Scheduler) Rewrites() bool { return len(s.rules.Load().Names.Rewrites) > 0 }

// Records returns the decisions recorded for explain.
func (s *Scheduler) Records() *Records { return s.records }

// Outcomes returns the counts of ended requests.
func (s *Scheduler) Outcomes() *outcomes.Counter { return s.metrics.ends }

// Sessions returns the table of session bindings.
func (s *Scheduler) Sessions() *sessions.Table { return s.opts.Sessions }
