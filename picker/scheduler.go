package picker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/outcomes"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
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
	RemoteClusters *RemoteClusters
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

	Registerer prometheus.Registerer // nil leaves the metrics unregistered
	Log        *slog.Logger          // nil discards
	Now        func() time.Time      // nil means the monotonic clock
}

// Gate queues requests for capacity before their prompt is rendered and before the pool is read. A
// waiting request holds no other resources, and its decision uses the state after the wait.
type Gate interface {
	// Wait returns when the request may proceed. The returned permit must be passed to Leave
	// exactly once. The error is a *request.Error with the reason of a rejection. It is called on
	// the request's goroutine and returns soon after ctx ends.
	Wait(ctx context.Context, r *request.Request) (Permit, error)
	// Leave returns a permit after the answer has ended or none was attempted. service is the
	// engine time in seconds, below 0 if unknown.
	Leave(p Permit, service float64)
}

// Permit identifies a request's share of a pool's capacity. The zero Permit is none.
type Permit struct {
	Queue  uint32
	Handle uint64
}

// openGate is a Gate that admits all requests at once.
type openGate struct{}

// Wait implements Gate.
func (openGate) Wait(context.Context, *request.Request) (Permit, error) { return Permit{}, nil }

// Leave implements Gate.
func (openGate) Leave(Permit, float64) {}

// Lists keeps the pool's model lists up to date.
type Lists interface {
	// Confirm returns when the pool's lists are recent enough to prove that no endpoint serves the
	// model, or when that takes too long.
	Confirm(ctx context.Context, model string)
	// Recheck reports that an endpoint rejected a model from its list.
	Recheck(id block.EndpointID)
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
	opts    Options
	rules   atomic.Pointer[Rules]
	records *Records
	metrics *metrics
	match   cycle.Match // of the Matcher; nil without one
	turn    atomic.Uint64
	unseen  endpoint.Unseen
	farBook endpoint.LoadTracker // of requests sent to remote clusters

	patience [patiences]patience // by model
	again    health.Again
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
func (s *Scheduler) Outcomes() *outcomes.Counter { return s.metrics.tally }

// Sessions returns the table of session bindings.
func (s *Scheduler) Sessions() *sessions.Table { return s.opts.Sessions }

// Choose implements Chooser. r must be a result of request.Parse; Choose fills in the fields that
// depend on the configuration and the prompt. Before any other work it waits for the Gate, and for
// fresh model lists if no known endpoint serves r's model.
func (s *Scheduler) Choose(ctx context.Context, r *request.Request) (*request.Decision, error) {
	d, err := s.choose(ctx, r)
	if err != nil {
		s.metrics.refused(r, err)
		return nil, err
	}
	return d, nil
}

func (s *Scheduler) choose(ctx context.Context, r *request.Request) (*request.Decision, error) {
	rules, seed := s.rules.Load(), s.opts.Seed+s.turn.Add(1)*0xd1342543de82ef95
	s.resolve(rules, r, seed)
	if err := s.assume(r); err != nil {
		return nil, err
	}
	if r.Target == "" {
		s.countModelless(r)
	}
	if s.opts.Lists != nil && !s.opts.Pool.Snapshot().MayServe(r.Target) {
		s.opts.Lists.Confirm(ctx, r.Target)
	}
	s.awaitKeeper(ctx, r)
	gone := s.mayLeave(ctx, rules, r, seed)
	var place Permit
	var err error
	if !s.inVain(r) {
		span := r.Trace.Start(tracing.SpanQueue)
		place, err = s.opts.Gate.Wait(ctx, r)
		span.End()
	}
	if f := gone(err); f != nil {
		return &f.Decision, nil
	}
	if err != nil {
		return nil, err
	}
	d, err := s.place(ctx, rules, r, seed, standing{})
	if err != nil {
		s.opts.Gate.Leave(place, -1)
		return nil, err
	}
	d.place = place
	return &d.Decision, nil
}

// maxModelless bounds the number of logged paths.
const maxModelless = 16

// countModelless counts a request without a model in a pool of several models, and logs its path
// once.
func (s *Scheduler) countModelless(r *request.Request) {
	if _, several := s.opts.Pool.Snapshot().OnlyBase(); !several {
		return
	}
	s.metrics.modelless.Inc()
	s.modelless.total.Add(1)
	if s.modelless.n.Load() >= maxModelless {
		return
	}
	if _, logged := s.modelless.paths.LoadOrStore(budget.PrintableName(r.Path), true); !logged {
		s.modelless.n.Add(1)
		s.opts.Log.Warn("request without a model in a pool of several models: any engine may receive it", "path", budget.PrintableName(r.Path))
	}
}

// Modelless returns the number of requests without a model in a pool of several models, and the first
// of their paths in alphabetical order.
func (s *Scheduler) Modelless() (requests uint64, paths []string) {
	s.modelless.paths.Range(func(path, _ any) bool {
		paths = append(paths, path.(string))
		return true
	})
	slices.Sort(paths)
	return s.modelless.total.Load(), paths
}

// inVain reports whether every endpoint is known to reject the request. It must not queue then,
// since its body would use memory only to be rejected.
func (s *Scheduler) inVain(r *request.Request) bool {
	snap, now := s.opts.Pool.Snapshot(), s.opts.Now()
	takes := func(ep *endpoint.Endpoint) bool { return !ep.Refuses(r.Target, now) }
	return !s.opts.PlaceUnknown && len(snap.Endpoints) > 0 && !snap.MayServe(r.Target) && !slices.ContainsFunc(snap.Endpoints, takes)
}

// place decides about a request that need not wait, has waited, or may leave to a remote cluster.
// Its work is bounded by WorkTimeout.
func (s *Scheduler) place(ctx context.Context, rules *Rules, r *request.Request, seed uint64, st standing) (*flight, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.WorkTimeout)
	defer cancel()
	if ctx.Err() != nil {
		return nil, request.Errorf(request.ReasonCancelled, "the client disconnected")
	}
	start := s.opts.Now()
	s.unseen.Expire(start)
	defer s.release(r)
	c := s.prepare(ctx, rules, r, start, seed)
	defer c.Free()
	err := s.decide(c, rules, st)
	if n := c.Failures(); n > 0 {
		s.metrics.evaluations.Add(float64(n))
	}
	if err != nil {
		s.reportSlow(s.opts.Now().Sub(start))
		if st == (standing{}) {
			s.records.addRefused(c, err)
		}
		return nil, err
	}
	f := s.launch(c, s.askFar(ctx, c))
	if rules.Answer != nil && !f.ep.IsRemote() {
		f.AnswerHeaders = rules.Answer(c, c.Best())
	}
	if rules.Urgency != nil && !f.ep.IsRemote() {
		f.Priority, f.Prioritised = rules.Urgency(c, f.Endpoints, f.predicted.Own)
	}
	s.warmUp(c, f)
	s.traceChoice(c)
	took := s.opts.Now().Sub(start)
	s.metrics.placed(took, c)
	s.reportSlow(took)
	return f, nil
}

// reportSlow reports a decision that took long.
func (s *Scheduler) reportSlow(took time.Duration) {
	if s.opts.SlowDecision > 0 && took >= s.opts.SlowDecision {
		s.opts.Slow(took)
	}
}

// resolve fills in the fields of r that depend on the configuration.
func (s *Scheduler) resolve(rules *Rules, r *request.Request, seed uint64) {
	r.Priority = rules.Names.Objectives[r.Objective]
	if r.Capped {
		r.Priority = min(r.Priority, r.MaxPriority)
	}
	r.UseSession(rules.Sessions)
	s.rewrite(rules, r, seed)
}

// assume sets the model of a request whose body names none, as engines allow, if the pool serves a
// single model. With several models the chosen engine must not decide, except for /generate, whose
// bodies never name a model.
func (s *Scheduler) assume(r *request.Request) error {
	if !r.NoModel || r.Kind == request.KindOther {
		return nil
	}
	base, several := s.opts.Pool.Snapshot().OnlyBase()
	if r.Kind != request.KindGenerate {
		switch {
		case r.Target != "":
			return request.Errorf(request.ReasonBadRequest, "request body has no model that could be rewritten")
		case several:
			return request.Errorf(request.ReasonBadRequest, "request body has no model, and the pool serves several")
		}
	}
	if r.Target == "" {
		r.Model, r.Target = base, base
	}
	return nil
}

// prepare renders r's prompt and opens its cycle.
func (s *Scheduler) prepare(ctx context.Context, rules *Rules, r *request.Request, now time.Time, seed uint64) *cycle.Cycle {
	if s.opts.Prompts != nil {
		span := r.Trace.Start(tracing.SpanRender)
		s.opts.Prompts.Fill(ctx, r)
		tracePrompt(span, r)
	}
	return cycle.New(cycle.Options{
		Context: ctx, Pool: s.opts.Pool, Match: s.match, Sessions: s.opts.Sessions, Now: now, Seed: seed, Tiers: rules.Tiers,
		Harmful: s.suspects(r, now), WarmUps: s.mayWarmUp(r), ByPriority: rules.Urgency != nil,
	}, r)
}

// suspects reports whether several engines failed on r's prompt, or one died while it was in
// flight.
func (s *Scheduler) suspects(r *request.Request, now time.Time) bool {
	return !s.prompts.Empty() && s.prompts.Suspected(r.PromptKey(), now)
}

// release returns the buffers that prepare borrowed for r.
func (s *Scheduler) release(r *request.Request) {
	if s.opts.Prompts != nil {
		s.opts.Prompts.Release(r)
	}
}

// rewrite sets the model name for the engine. The rewrite header takes precedence.
func (s *Scheduler) rewrite(rules *Rules, r *request.Request, seed uint64) {
	if r.Target != r.Model || r.Fixed {
		return
	}
	if target := rules.Names.Target(r.Model, seed>>7); target != "" {
		r.Target = target
	}
}

// decide fills the cycle's plan.
func (s *Scheduler) decide(c *cycle.Cycle, rules *Rules, st standing) error {
	err := st.refused
	if err == nil {
		err = s.decideHere(c, rules)
	}
	c.SetQueueWait(st.wait)
	if err = s.offer(c, err); err == nil && st.wait > 0 && !c.First().IsRemote() {
		return errStays
	}
	return err
}

// decideHere fills the plan with endpoints of this cluster.
func (s *Scheduler) decideHere(c *cycle.Cycle, rules *Rules) error {
	if c.Unserved() {
		if !s.opts.PlaceUnknown {
			return request.Errorf(request.ReasonModelNotFound, "The model `%s` does not exist.", budget.PrintableName(c.Request.Model))
		}
		c.AllowAll()
	}
	if c.Candidates() == 0 {
		return request.Errorf(request.ReasonNoEndpoints, "no endpoint is ready")
	}
	if s.opts.RefuseKillers && !s.prompts.Empty() && s.prompts.Killer(c.Request.PromptKey(), c.Now) {
		return request.Errorf(request.ReasonBadRequest, "this prompt was in flight at two engines when they died a short time ago")
	}
	if rules.Admit != nil {
		if err := rules.Admit(c); err != nil {
			return err
		}
	}
	if err := rules.Handler.Handle(c, c.Plan()); err != nil {
		return err
	}
	if c.Best() < 0 {
		return request.Errorf(request.ReasonNoEndpoints, "no endpoint passed the filters")
	}
	c.PlanFetch()
	return nil
}
