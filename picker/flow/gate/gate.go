package gate

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Config is what a configuration says of waiting.
type Config struct {
	Queue  func() flow.Options // new options for each pool
	Sizing Sizing
}

// Options build a Gate. Pool is required.
type Options struct {
	Pool       *endpoint.Pool
	Now        func() time.Time
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// Gate implements picker.Gate.
type Gate struct {
	o       Options
	started time.Time
	config  atomic.Pointer[Config] // nil: nobody waits
	metrics *metrics

	mu      sync.RWMutex
	groups  []*group // by number, from first on
	first   uint32   // numbers of earlier configurations are not used again
	byModel map[string]*group
	wake    chan struct{}
}

// group is the queue of one pool.
type group struct {
	model  string
	number uint32
	sizing Sizing

	mu      sync.Mutex
	core    *flow.Core
	waiters []*waiter // by slot of the core
	limits  limits
	events  []flow.Event
	changed bool // gauges differ from those told last
	active  bool // something waits or is in flight
}

// waiter is a goroutine that waits.
type waiter struct{ outcome chan flow.Outcome }

var waiters = sync.Pool{New: func() any { return &waiter{make(chan flow.Outcome, 1)} }}

// maxGroups bounds the pools that are told apart.
const maxGroups = 1000

// New returns a gate that lets everybody pass until Configure.
func New(o Options) (*Gate, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	g := &Gate{o: o, started: o.Now(), first: 1, byModel: map[string]*group{}, wake: make(chan struct{}, 1)}
	g.metrics = newMetrics(g)
	if o.Registerer != nil {
		if err := o.Registerer.Register(g.metrics); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Configure swaps the configuration; nil lets everybody pass. Requests that wait are
// let go, and those that come wait by the new rules.
func (g *Gate) Configure(c *Config) {
	g.mu.Lock()
	old := g.groups
	g.config.Store(c)
	g.first += uint32(len(g.groups))
	g.groups, g.byModel = nil, map[string]*group{}
	g.mu.Unlock()
	for _, grp := range old {
		grp.mu.Lock()
		grp.core.SetCapacity(g.now(), flow.Capacity{Places: 1 << 40, Endpoints: 1})
		grp.deliver()
		grp.mu.Unlock()
	}
}

func (g *Gate) now() int64 { return int64(g.o.Now().Sub(g.started)) + 1 }

// Wait implements picker.Gate.
func (g *Gate) Wait(ctx context.Context, r *request.Request) (picker.Place, error) {
	grp := g.group(r.Target)
	if grp == nil {
		return picker.Place{}, nil
	}
	ask := g.ask(ctx, grp, r)
	now := g.now()
	grp.mu.Lock()
	h, out := grp.core.Offer(now, ask)
	grp.changed, grp.active = true, true
	var w *waiter
	if out == flow.Queued {
		w = waiters.Get().(*waiter)
		grp.keep(h, w)
	}
	grp.deliver()
	grp.mu.Unlock()
	g.poke()
	place := picker.Place{Queue: grp.number, Handle: uint64(h)}
	if w == nil {
		return place, refusal(out, r)
	}
	out = g.await(ctx, grp, r, h, w)
	g.metrics.waited(r.Priority, out, time.Duration(g.now()-now))
	waiters.Put(w)
	return place, refusal(out, r)
}

// await returns the outcome of a request that waits.
func (g *Gate) await(ctx context.Context, grp *group, r *request.Request, h flow.Handle, w *waiter) flow.Outcome {
	if r.Waits != nil {
		r.Waits()
	}
	select {
	case out := <-w.outcome:
		return out
	case <-ctx.Done():
	}
	grp.mu.Lock()
	cancelled := grp.core.Cancel(g.now(), h)
	grp.deliver()
	grp.mu.Unlock()
	if out := <-w.outcome; cancelled || out != flow.Dispatched {
		return out
	}
	g.Leave(picker.Place{Queue: grp.number, Handle: uint64(h)}, -1)
	return flow.Cancelled
}

// Leave implements picker.Gate.
func (g *Gate) Leave(p picker.Place, service float64) {
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
	grp.core.Release(g.now(), flow.Handle(p.Handle), service)
	grp.changed = true
	grp.deliver()
	grp.mu.Unlock()
}

// ask says what the core must know of a request.
func (g *Gate) ask(ctx context.Context, grp *group, r *request.Request) flow.Ask {
	a := flow.Ask{
		Flow: r.FairnessID, Priority: r.Priority, Bytes: int64(len(r.Body)), Places: grp.sizing.places(r.InputTokens),
		TTL: r.QueueTTL, Target: r.SLOTTFT, Work: work(r),
	}
	if a.Flow == "" {
		a.Flow = "default-flow"
	}
	if r.MaxWait > 0 && (a.TTL == 0 || a.TTL > r.MaxWait) {
		a.TTL = r.MaxWait
	}
	if at, ok := ctx.Deadline(); ok {
		if left := max(at.Sub(g.o.Now()), time.Millisecond); a.TTL == 0 || left < a.TTL {
			a.TTL = left
		}
	}
	return a
}

// work predicts the seconds that an engine spends on a request, from its sizes: what
// counts is the order among requests.
func work(r *request.Request) float64 {
	const perPrompt, perToken, usualAnswer = 1e-4, 1e-2, 256
	answer := r.MaxTokens
	if answer <= 0 || answer > 4*usualAnswer {
		answer = usualAnswer
	}
	return perPrompt*float64(r.InputTokens) + perToken*float64(answer)
}

// refusal is the error of an outcome, nil for requests that may go.
func refusal(out flow.Outcome, r *request.Request) error {
	switch out {
	case flow.Dispatched:
		return nil
	case flow.RefusedFull:
		return request.Errorf(request.ReasonSaturated, "the pool is saturated, and as many requests of priority %d wait as may", r.Priority)
	case flow.Displaced:
		return request.Errorf(request.ReasonSaturated, "the pool is saturated, and the request made way for others")
	case flow.RefusedEmpty:
		return request.Errorf(request.ReasonNoEndpoints, "no endpoint is ready, and as many requests wait as may")
	case flow.Expired:
		return request.Errorf(request.ReasonTTLExpired, "the pool is saturated, and the request waited as long as it may")
	case flow.ExpiredEmpty:
		return request.Errorf(request.ReasonNoEndpoints, "no endpoint became ready while the request waited")
	case flow.Cancelled:
		return request.Errorf(request.ReasonCancelled, "the client went away")
	default:
		return request.Errorf(request.ReasonShuttingDown, "the picker stops")
	}
}

// group returns the queue of the pool that serves a model, nil when nobody waits.
func (g *Gate) group(target string) *group {
	if g.config.Load() == nil {
		return nil
	}
	snap, model := g.o.Pool.Snapshot(), ""
	if list := snap.Serving(target); len(list) > 0 {
		model = snap.Endpoints[list[0]].Base()
	}
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
		grp := &group{model: model, number: g.first + uint32(len(g.groups)), sizing: c.Sizing, core: flow.New(c.Queue()), limits: limits{}}
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

// keep notes who waits under a handle. grp.mu is held.
func (grp *group) keep(h flow.Handle, w *waiter) {
	slot := int(uint32(h))
	for slot >= len(grp.waiters) {
		grp.waiters = append(grp.waiters, nil)
	}
	grp.waiters[slot] = w
}

// deliver wakes those whose wait has ended. grp.mu is held: channels have room.
func (grp *group) deliver() {
	grp.events = grp.core.Events(grp.events[:0])
	for _, e := range grp.events {
		slot := uint32(e.Handle)
		if w := grp.waiters[slot]; w != nil {
			grp.waiters[slot] = nil
			w.outcome <- e.Outcome
		}
	}
}
