package gate

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/watchdog"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Config is the flow control configuration.
type Config struct {
	Queue    func() rules.Options // returns new options for each pool
	Sizing   rules.Sizing
	Identity []Source // of flows, in order, for requests without a fairness ID
}

// Options configure a Gate. Pool is required.
type Options struct {
	Pool       *endpoint.Pool
	Now        func() time.Time
	Registerer prometheus.Registerer
	Log        *slog.Logger
	Watch      *watchdog.Loop // of Run; nil: not watched
}

// Gate implements picker.Gate.
type Gate struct {
	o            Options
	started      time.Time
	clock        func() time.Time       // nil: the monotonic clock
	config       atomic.Pointer[Config] // nil: no request waits
	metrics      *metrics
	waiters      sync.Pool // of *waiter
	lastRefusals refusals
	incarnation  uint64 // identifies this replica's marks

	configuring sync.Mutex

	mu      sync.RWMutex
	groups  []*group // by number, starting with first
	first   uint32   // numbers of earlier configurations are not reused
	byModel map[string]*group
	peers   map[string]bool // other replicas that have sent gauges
	wake    chan struct{}
	dirty   chan struct{} // see Dirty
}

// group is the queue of one pool.
type group struct {
	model  string
	number uint32

	mu           sync.Mutex
	sizing       rules.Sizing
	core         *flow.Core
	waiters      []*waiter // by slot of the core
	evictFuncs   []func()  // by slot, for evictable in-flight requests
	limits       limits
	own          []*endpoint.Endpoint // endpoints that serve the model, from snapshot of
	of           *endpoint.Snapshot
	leaving      []*endpoint.Endpoint // endpoints that left the list with responses in progress
	events       []rules.Event
	changed      bool                      // gauges differ from those sent last
	peerMarks    map[string]rules.PeerMark // last marks of other replicas, by origin
	markReceived bool                      // a mark arrived since Changes
	answer       *rules.Answer             // next result of Answers
	active       bool                      // requests wait or are in flight
	dirty        chan<- struct{}           // of the gate
}

// maxGroups is the maximum number of separate pools.
const maxGroups = 1000

// New returns a gate that admits all requests until Configure.
func New(o Options) (*Gate, error) {
	clock := o.Now
	if o.Now == nil {
		o.Now = monotime.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	g := &Gate{o: o, clock: clock, started: o.Now(), first: 1, byModel: map[string]*group{}, peers: map[string]bool{}, incarnation: rand.Uint64(), wake: make(chan struct{}, 1), dirty: make(chan struct{}, 1)}
	g.waiters.New = func() any { return &waiter{g: g, outcome: make(chan rules.Outcome, 1)} }
	g.metrics = newMetrics(g)
	o.Pool.LoadTracker().Watch(g.loadChanged)
	if o.Registerer != nil {
		if err := o.Registerer.Register(g.metrics); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Configure replaces the configuration. Waiting and in-flight requests continue under the new
// rules. nil admits all requests, including the waiting ones.
func (g *Gate) Configure(c *Config) {
	g.configuring.Lock()
	defer g.configuring.Unlock()
	g.mu.Lock()
	groups := g.groups
	g.config.Store(c)
	if c == nil {
		g.first += uint32(len(g.groups))
		g.groups, g.byModel = nil, map[string]*group{}
	}
	g.mu.Unlock()
	for _, ep := range g.o.Pool.Snapshot().Endpoints {
		ep.SetPermits(0) // until measured under the new rules
	}
	for _, grp := range groups {
		grp.mu.Lock()
		if c == nil {
			grp.core.SetCapacity(g.now(), rules.Capacity{Permits: 1 << 40, Endpoints: 1})
		} else {
			grp.sizing = c.Sizing
			grp.core.Reconfigure(g.now(), c.Queue(), func(tokens int64) int64 { return c.Sizing.Permits(int(tokens)) })
			g.resize(grp)
		}
		grp.changed = true
		grp.deliver()
		grp.mu.Unlock()
	}
}

// now is the time since the gate was created: from the given clock, or from the monotonic clock
// alone, which is twice as fast to read.
func (g *Gate) now() int64 {
	if g.clock == nil {
		return int64(time.Since(g.started)) + 1
	}
	return int64(g.clock().Sub(g.started)) + 1
}

// Enter implements picker.Gate.
func (g *Gate) Enter(ctx context.Context, r *request.Request) (picker.Permit, picker.QueueEntry, error) {
	permit, out, w := g.offer(ctx, r, nil)
	if w == nil {
		return permit, nil, refusal(out, r)
	}
	return permit, w, nil
}

// Offer is Enter for a caller without a goroutine. If r has to wait, it returns waits true and calls
// notify once later: with nil when r is dispatched, or with the reason for a refusal. notify runs under
// the queue's lock; it must return immediately and must not call the gate.
func (g *Gate) Offer(ctx context.Context, r *request.Request, notify func(error)) (permit picker.Permit, waits bool, err error) {
	begun := g.now()
	permit, out, w := g.offer(ctx, r, func(out rules.Outcome) {
		waited := time.Duration(g.now() - begun)
		if g.metrics.waited(r.Priority, out, waited); out != rules.Dispatched {
			g.refused(r, out, waited)
		}
		notify(refusal(out, r))
	})
	return permit, w != nil, refusal(out, r)
}

// offer requests permits. If the request has to wait, it returns a waiter that calls notify, or uses
// its channel if notify is nil.
func (g *Gate) offer(ctx context.Context, r *request.Request, notify func(rules.Outcome)) (picker.Permit, rules.Outcome, *waiter) {
	grp := g.group(r.Target)
	if grp == nil {
		return picker.Permit{}, rules.Dispatched, nil
	}
	ask, begun := g.ask(ctx, r), g.now()
	var w *waiter
	grp.mu.Lock()
	ask.Permits = grp.sizing.Permits(r.InputTokens)
	h, out := grp.core.Offer(begun, ask)
	slept := !grp.active
	grp.changed, grp.active = true, true
	grp.deliver() // to displaced requests first: the new one may reuse a slot
	if out == rules.Queued {
		if notify != nil {
			w = &waiter{notify: notify}
		} else {
			w = g.waiters.Get().(*waiter)
		}
		w.grp, w.request, w.h, w.begun = grp, r, h, begun
		w.expected, _ = grp.core.Expected(h)
		w.rest = w.expected
		grp.waiters = keep(grp.waiters, h, w)
	}
	if ask.Endable && h != 0 {
		grp.evictFuncs = keep(grp.evictFuncs, h, r.Evict)
	}
	grp.mu.Unlock()
	if slept {
		g.wakeRun()
	}
	if h == 0 {
		g.refused(r, out, 0)
	}
	return picker.Permit{Queue: grp.number, Handle: uint64(h)}, out, w
}

// Leave implements picker.Gate.
func (g *Gate) Leave(p picker.Permit, service float64) {
	if p.Handle == 0 {
		return
	}
	g.mu.RLock()
	var grp *group
	if at := int64(p.Queue) - int64(g.first); at >= 0 && at < int64(len(g.groups)) {
		grp = g.groups[at]
	}
	g.mu.RUnlock()
	if grp == nil {
		return
	}
	grp.mu.Lock()
	// Callbacks run under the lock, and this request can no longer be evicted.
	if slot := int(uint32(p.Handle)); grp.core.Release(g.now(), rules.Handle(p.Handle), service) && slot < len(grp.evictFuncs) {
		grp.evictFuncs[slot] = nil
	}
	grp.changed = true
	grp.deliver()
	grp.mu.Unlock()
}

// ask converts a request for the core.
func (g *Gate) ask(ctx context.Context, r *request.Request) rules.Request {
	var sources []Source
	if c := g.config.Load(); c != nil {
		sources = c.Identity
	}
	a := rules.Request{
		Flow: identify(r, sources), Priority: r.Priority, Bytes: int64(len(r.Body)), Tokens: int64(r.InputTokens),
		TTL: r.QueueTTL, Target: r.SLOTTFT, Waited: r.Waited, Work: work(r), Endable: r.Evict != nil && r.Priority < 0,
	}
	// These limits begin now, not with the arrival.
	if most := r.Waited + r.MaxWait; r.MaxWait > 0 && (a.TTL == 0 || a.TTL > most) {
		a.TTL = most
	}
	if at, ok := ctx.Deadline(); ok {
		if left := r.Waited + max(at.Sub(g.o.Now()), time.Millisecond); a.TTL == 0 || left < a.TTL {
			a.TTL = left
		}
	}
	return a
}

// work predicts a request's engine seconds from its sizes. Only the order among requests matters.
func work(r *request.Request) float64 {
	const perPrompt, perToken, usualAnswer = 1e-4, 1e-2, 256
	answer := r.MaxTokens
	if answer <= 0 || answer > 4*usualAnswer {
		answer = usualAnswer
	}
	return perPrompt*float64(r.InputTokens) + perToken*float64(answer)
}

// refusal returns the error for an outcome, nil for dispatched requests.
func refusal(out rules.Outcome, r *request.Request) error {
	switch out {
	case rules.Dispatched, rules.Queued:
		return nil
	case rules.RefusedFull:
		return request.Errorf(request.ReasonSaturated, "the pool is saturated, and the queue for priority %d is full", r.Priority)
	case rules.Displaced:
		return request.Errorf(request.ReasonSaturated, "the pool is saturated, and the request was displaced by others")
	case rules.RefusedEmpty:
		return request.Errorf(request.ReasonNoEndpoints, "no endpoint is ready, and the queue is full")
	case rules.Expired:
		return request.Errorf(request.ReasonTTLExpired, "the pool is saturated, and the request exceeded its maximum wait")
	case rules.ExpiredEmpty:
		return request.Errorf(request.ReasonNoEndpoints, "no endpoint became ready while the request waited")
	case rules.Cancelled:
		return request.Errorf(request.ReasonCancelled, "the client disconnected")
	default:
		return request.Errorf(request.ReasonShuttingDown, "the picker is shutting down")
	}
}

// group returns the queue of the pool that serves a model, or nil if requests do not wait.
func (g *Gate) group(target string) *group {
	if g.config.Load() == nil {
		return nil
	}
	snap, model := g.o.Pool.Snapshot(), ""
	if list := snap.Serving(target); len(list) > 0 {
		model = snap.Endpoints[list[0]].Base()
	} else if len(snap.Endpoints) > 0 && !snap.MayServe(target) {
		model = snap.Endpoints[0].Base() // any endpoint will do, because no endpoint can appear for the model
	}
	return g.groupOf(model)
}

// groupOf returns the queue of the pool for a base model. A new queue is initialized with the known
// replicas, because otherwise it would take all permits for its own.
func (g *Gate) groupOf(model string) *group {
	g.mu.RLock()
	grp := g.byModel[model]
	g.mu.RUnlock()
	if grp != nil {
		return grp
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.config.Load()
	if c == nil {
		return nil
	}
	if g.byModel[model] == nil {
		if len(g.groups) >= maxGroups {
			return g.groups[0]
		}
		grp := &group{model: model, number: g.first + uint32(len(g.groups)), sizing: c.Sizing, core: flow.New(c.Queue()), limits: limits{}, peerMarks: map[string]rules.PeerMark{}, changed: true, dirty: g.dirty}
		for origin := range g.peers {
			grp.core.ReceiveShares(g.now(), origin, nil)
		}
		g.resize(grp)
		g.groups = append(g.groups, grp)
		g.byModel[model] = grp
	}
	return g.byModel[model]
}

func (g *Gate) all() []*group {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.groups
}

// keep stores a value under a handle's slot.
func keep[T any](list []T, h rules.Handle, v T) []T {
	slot := int(uint32(h))
	for slot >= len(list) {
		var none T
		list = append(list, none)
	}
	list[slot] = v
	return list
}

// deliver wakes requests that stopped waiting and ends evicted ones. The caller holds grp.mu;
// channels have room, and evict functions return immediately.
func (grp *group) deliver() {
	grp.events = grp.core.Events(grp.events[:0])
	if grp.changed = grp.changed || len(grp.events) > 0; grp.changed || grp.markReceived {
		select {
		case grp.dirty <- struct{}{}:
		default:
		}
	}
	for _, e := range grp.events {
		slot := uint32(e.Handle)
		if e.Outcome == rules.Evicted {
			if end := grp.evictFuncs[slot]; end != nil {
				end()
			}
			continue
		}
		if w := grp.waiters[slot]; w != nil {
			if grp.waiters[slot] = nil; w.notify != nil {
				w.notify(e.Outcome)
			} else {
				w.outcome <- e.Outcome
			}
		}
	}
}
