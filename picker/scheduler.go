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
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

var (
	errNoPool  = errors.New("picker: options: a pool is required")
	errNoRules = errors.New("picker: options: rules with a profile handler are required")
)

// Rules are what the user's configuration decides. They are immutable and
// swapped as a whole.
type Rules struct {
	Handler cycle.ProfileHandler
	Names   request.Names // what objectives and models mean
	// Sessions say where requests carry their session key; the first that is
	// there wins over what request.Parse found.
	Sessions []request.SessionSource
	Tiers    *cycle.TierWeights // nil means DefaultTiers
	// Admit refuses a request before it is placed; nil admits all. The error
	// is a *request.Error.
	Admit func(c *cycle.Cycle) error
	// Answer returns headers for the answer to a request that was placed at the
	// candidate chosen, for Cycle.All; nil: none ever.
	Answer func(c *cycle.Cycle, chosen int32) []request.HeaderSet
	// Urgency returns the priority that engines are to have the request by, which may be
	// sent to the endpoints of those addresses and whose prefill is expected to take own
	// seconds; false: none is written. nil: none ever.
	Urgency func(c *cycle.Cycle, endpoints []string, own float64) (priority int64, ok bool)
}

// Options build a Scheduler. Pool and Rules are required.
type Options struct {
	Pool  *endpoint.Pool
	Rules *Rules

	// Matcher knows who holds which prompt; nil: nobody holds anything.
	Matcher Matcher
	// Prompts fills what prompts are matched by; nil leaves what request.Parse
	// estimated.
	Prompts Prompts
	// Gate is where requests wait for capacity; nil admits all at once.
	Gate Gate
	// RemoteClusters knows other clusters; nil: there are none.
	RemoteClusters *RemoteClusters
	// WorkTimeout bounds the work of a decision, waits for the Gate apart: after it,
	// load alone decides. It must be shorter than the proxy's timer. 0 means
	// DefaultWorkTimeout.
	WorkTimeout time.Duration
	// Lists reads engines' lists of models again; nil: they stay as they are.
	Lists Lists
	// PlaceUnknown places requests for models that nobody serves; false refuses
	// them with request.ReasonModelNotFound.
	PlaceUnknown bool
	// RefuseKillers refuses prompts that failed at more than one endpoint and were
	// answered by none since, for two minutes. In any case such prompts get no second
	// try, and go where the fewest answers have begun.
	RefuseKillers bool
	// WarmUps sends prompts to endpoints to which nobody sent them; zero: nobody does.
	WarmUps WarmUps
	// Blame remembers prompts that fail; nil makes a memory of its own.
	Blame *health.Prompts
	// Sessions remembers where sessions went; nil makes a table of its own.
	Sessions *sessions.Table

	// SampleBodies is the share of responses whose body the scheduler asks
	// for, to learn first-token times and cached tokens, once an endpoint is
	// known well enough. 0 means 1 in 20; negative means none.
	SampleBodies float64
	// Records is the number of decisions kept for explain; 0 means 256,
	// negative none.
	Records int
	// Seed makes ties and samples repeatable; 0 draws one.
	Seed uint64

	Registerer prometheus.Registerer // nil leaves the metrics unregistered
	Log        *slog.Logger          // nil discards
	Now        func() time.Time      // nil means steady.Now
}

// Gate is where requests wait for capacity, before their prompt is rendered and
// before the pool is looked at: a request that waits holds nothing but itself,
// and decides by what is true afterwards.
type Gate interface {
	// Wait returns when the request may go on; the place that it then holds is due
	// to Leave, exactly once. The error is a *request.Error that says why it may
	// not. It is called on the request's goroutine and returns soon after ctx ends.
	Wait(ctx context.Context, r *request.Request) (Permit, error)
	// Leave gives a place back: the answer has ended, or none was tried. service is
	// the seconds that an engine worked for it, below 0 when that is unknown.
	Leave(p Permit, service float64)
}

// Permit names what a request holds of a pool's capacity. The zero Permit is none.
type Permit struct {
	Queue  uint32
	Handle uint64
}

// openGate is the Gate that admits all at once.
type openGate struct{}

// Wait implements Gate.
func (openGate) Wait(context.Context, *request.Request) (Permit, error) { return Permit{}, nil }

// Leave implements Gate.
func (openGate) Leave(Permit, float64) {}

// Lists keeps the pool informed of which models engines serve.
type Lists interface {
	// Confirm returns when the pool's lists are recent enough to prove that
	// nobody serves the model, or when that cannot be had in time.
	Confirm(ctx context.Context, model string)
	// Recheck is told that an endpoint refused a model that it was known to serve.
	Recheck(id block.EndpointID)
}

// DefaultWorkTimeout bounds the work of a decision.
const DefaultWorkTimeout = time.Second

const (
	defaultSample  = 0.05
	defaultRecords = 256
	enoughSamples  = 12 // below, every response of an endpoint is asked for
	mostSamples    = 64 // of an endpoint, where responses yield no samples
)

// Scheduler is the Chooser of the daemon: profile, book, records, learning. It
// starts no goroutine.
type Scheduler struct {
	opts    Options
	rules   atomic.Pointer[Rules]
	records *Records
	metrics *metrics
	match   cycle.Match // of the Matcher; nil when there is none
	turn    atomic.Uint64
	unseen  endpoint.Unseen
	farBook endpoint.LoadTracker // of requests sent to other clusters

	patience [patiences]patience // by model
	again    health.Again
	prompts  *health.Prompts
	clients  health.Prompts // clients whose requests were declined, by client and model; not shared

	modelless struct {
		n     atomic.Int32 // paths that were logged
		paths sync.Map
	}
}

// New returns a scheduler.
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
	if o.Records == 0 {
		o.Records = defaultRecords
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

// SetRules swaps the configuration. Requests being decided finish by the old
// one.
func (s *Scheduler) SetRules(r *Rules) error {
	if r == nil || r.Handler == nil {
		return errNoRules
	}
	s.rules.Store(r)
	return nil
}

// Rewrites reports whether models are rewritten by the name that bodies carry.
func (s *Scheduler) Rewrites() bool { return len(s.rules.Load().Names.Rewrites) > 0 }

// Records returns the decisions kept for explain.
func (s *Scheduler) Records() *Records { return s.records }

// Sessions returns the table of session bindings.
func (s *Scheduler) Sessions() *sessions.Table { return s.opts.Sessions }

// Choose implements Chooser. r was filled by request.Parse; Choose fills what
// the configuration and the prompt producer say. It waits, before anything is
// rendered or looked at, for the Gate, and for the lists of models when nobody is
// known to serve r's.
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
		place, err = s.opts.Gate.Wait(ctx, r)
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

// maxModelless bounds the paths that are named in the log.
const maxModelless = 16

// countModelless counts a request that names no model in a pool of several, and logs its
// path once.
func (s *Scheduler) countModelless(r *request.Request) {
	if _, several := s.opts.Pool.Snapshot().OnlyBase(); !several {
		return
	}
	s.metrics.modelless.Inc()
	if s.modelless.n.Load() >= maxModelless {
		return
	}
	if _, logged := s.modelless.paths.LoadOrStore(budget.PrintableName(r.Path), true); !logged {
		s.modelless.n.Add(1)
		s.opts.Log.Warn("request names no model and the pool serves several: any engine may get it", "path", budget.PrintableName(r.Path))
	}
}

// inVain reports whether every endpoint is sure to refuse the request. If it waited, its body
// would be held for as long as it may wait, only to be refused.
func (s *Scheduler) inVain(r *request.Request) bool {
	snap, now := s.opts.Pool.Snapshot(), s.opts.Now()
	takes := func(ep *endpoint.Endpoint) bool { return !ep.Refuses(r.Target, now) }
	return !s.opts.PlaceUnknown && len(snap.Endpoints) > 0 && !snap.MayServe(r.Target) && !slices.ContainsFunc(snap.Endpoints, takes)
}

// place decides for a request that need not wait, or no longer, or that may leave. Its work
// is bounded.
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
	if err := s.decide(c, rules, st); err != nil {
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
	s.metrics.placed(s.opts.Now().Sub(start), c)
	return f, nil
}

// resolve fills what the configuration says about r.
func (s *Scheduler) resolve(rules *Rules, r *request.Request, seed uint64) {
	r.Priority = rules.Names.Objectives[r.Objective]
	if r.Capped {
		r.Priority = min(r.Priority, r.MaxPriority)
	}
	r.UseSession(rules.Sessions)
	s.rewrite(rules, r, seed)
}

// assume fills in the model where the body was read and names none, which engines allow:
// that of the pool, nothing where it is not known. Among several the engine that happens to
// be chosen must not decide, except for /generate, whose bodies never name one.
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

// prepare renders r's prompt and opens a cycle for it.
func (s *Scheduler) prepare(ctx context.Context, rules *Rules, r *request.Request, now time.Time, seed uint64) *cycle.Cycle {
	if s.opts.Prompts != nil {
		s.opts.Prompts.Fill(ctx, r)
	}
	return cycle.New(cycle.Options{
		Context: ctx, Pool: s.opts.Pool, Match: s.match, Sessions: s.opts.Sessions, Now: now, Seed: seed, Tiers: rules.Tiers,
		Harmful: s.suspects(r, now), WarmUps: s.mayWarmUp(r),
	}, r)
}

// suspects reports whether engines failed r's prompt, one after the other.
func (s *Scheduler) suspects(r *request.Request, now time.Time) bool {
	return !s.prompts.Empty() && s.prompts.Suspected(r.PromptKey(), now)
}

// release gives back what prepare borrowed for r.
func (s *Scheduler) release(r *request.Request) {
	if s.opts.Prompts != nil {
		s.opts.Prompts.Release(r)
	}
}

// rewrite sets the model that the engine will see. The rewrite header takes precedence.
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

// decideHere fills it with this cluster's endpoints.
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
	if s.opts.RefuseKillers && s.suspects(c.Request, c.Now) {
		return request.Errorf(request.ReasonBadRequest, "this prompt failed at several engines a short time ago")
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
