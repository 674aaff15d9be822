package admission

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/programs"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// Options configure a Gate. Pool and Next are required.
type Options struct {
	Pool       *endpoint.Pool
	Next       picker.Gate // requests go there once their program is admitted
	Now        func() time.Time
	Registerer prometheus.Registerer
}

// Gate implements picker.Gate.
type Gate struct {
	o      Options
	began  time.Time
	config atomic.Pointer[programs.Config] // nil: requests pass

	mu      sync.Mutex
	cores   map[string]*group // by base model
	flights map[uint64]*flight
	next    uint64
	woken   []uint64

	tracked, kept, footprint *prometheus.Desc
	untracked                *prometheus.Desc
}

// group is the core of one base model.
type group struct {
	*programs.Core
	measured int64              // when the limit was
	kept     map[uint64]*flight // by handle
}

// flight is a tracked request until its end.
type flight struct {
	group  *group
	handle uint64
	permit picker.Permit // of the next gate
	wake   func()        // called when it is no longer kept
}

const (
	maxGroups    = 64
	measureEvery = int64(250 * time.Millisecond)
	pollEvery    = 250 * time.Millisecond
)

// New returns a gate that passes all requests until Configure.
func New(o Options) (*Gate, error) {
	if o.Now == nil {
		o.Now = monotime.Now
	}
	g := &Gate{o: o, began: o.Now(), cores: map[string]*group{}, flights: map[uint64]*flight{}}
	g.describe()
	if o.Registerer != nil {
		if err := o.Registerer.Register(g); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Configure replaces the configuration. nil passes all requests, including the kept ones.
func (g *Gate) Configure(c *programs.Config) {
	g.config.Store(c)
	g.mu.Lock()
	for _, grp := range g.cores {
		grp.measured = math.MinInt64 / 2
	}
	g.mu.Unlock()
	g.Poll()
}

func (g *Gate) now() int64 { return int64(g.o.Now().Sub(g.began)) }

// Enter implements picker.Gate.
func (g *Gate) Enter(ctx context.Context, r *request.Request) (picker.Permit, picker.QueueEntry, error) {
	c := g.config.Load()
	if c == nil {
		return g.o.Next.Enter(ctx, r)
	}
	t, ok := c.Identify(r)
	if !ok {
		return g.o.Next.Enter(ctx, r)
	}
	return g.enter(ctx, c, r, t)
}

// enter is Enter for a request of a program.
func (g *Gate) enter(ctx context.Context, c *programs.Config, r *request.Request, t programs.Turn) (picker.Permit, picker.QueueEntry, error) {
	wake := make(chan struct{})
	p, waits := g.offer(c, r, t, func() { close(wake) })
	if p.Program == 0 {
		return g.o.Next.Enter(ctx, r)
	}
	e := &entry{g: g, r: r, permit: p, wake: wake}
	if waits {
		return p, e, nil
	}
	e.wake = nil
	if err := e.enter(ctx); err != nil || e.next == nil {
		return p, nil, err
	}
	return p, e, nil
}

// Offer is the first half of Enter for a caller without a goroutine, which passes the request to the
// next gate itself. If waits is true, the request is kept until notify is called, which happens once and
// must not call the gate. A Permit without a program needs no Leave.
func (g *Gate) Offer(r *request.Request, notify func()) (p picker.Permit, waits bool) {
	c := g.config.Load()
	if c == nil {
		return picker.Permit{}, false
	}
	t, ok := c.Identify(r)
	if !ok {
		return picker.Permit{}, false
	}
	return g.offer(c, r, t, notify)
}

func (g *Gate) offer(c *programs.Config, r *request.Request, t programs.Turn, wake func()) (picker.Permit, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	grp := g.group(c, r.Target)
	if grp == nil {
		return picker.Permit{}, false
	}
	h, waits := grp.Offer(g.now(), t)
	if h == 0 {
		return picker.Permit{}, false
	}
	g.next++
	f := &flight{group: grp, handle: h}
	if waits {
		f.wake = wake
		grp.kept[h] = f
	}
	g.flights[g.next] = f
	return picker.Permit{Program: g.next}, waits
}

// group returns the state of the base model that serves a request, with a recent limit; nil if there are
// too many models. The caller holds g.mu.
func (g *Gate) group(c *programs.Config, target string) *group {
	snap, model := g.o.Pool.Snapshot(), ""
	if list := snap.Serving(target); len(list) > 0 {
		model = snap.Endpoints[list[0]].Base()
	}
	grp := g.cores[model]
	if grp == nil {
		if len(g.cores) >= maxGroups {
			return nil
		}
		grp = &group{Core: programs.NewCore(), measured: math.MinInt64 / 2, kept: map[uint64]*flight{}}
		g.cores[model] = grp
	}
	if now := g.now(); now-grp.measured >= measureEvery {
		grp.measured = now
		grp.SetLimit(c.Share * capacity(snap, model))
	}
	return grp
}

// capacity returns the tokens of KV memory of the engines that generate answers. It is infinite if the size of
// one engine's memory is unknown.
func capacity(snap *endpoint.Snapshot, model string) float64 {
	sum := 0.0
	for _, ep := range snap.Endpoints {
		if base := ep.Base(); base != model && base != "" && model != "" || ep.Down() || ep.Role&endpoint.RoleDecode == 0 {
			continue
		}
		r := ep.Reading(0)
		if r.Capacity <= 0 {
			return math.Inf(1)
		}
		sum += r.Capacity * float64(max(r.Ranks, 1))
	}
	if sum == 0 {
		return math.Inf(1)
	}
	return sum
}

// Place reports where a request with a permit was placed, as [programs.Core.Place].
func (g *Gate) Place(p picker.Permit, input, missing int) {
	if p.Program == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.flights[p.Program]; f != nil {
		f.group.Place(f.handle, input, missing)
	}
}

// Stored reports that the answer of a request with a permit is stored, as [programs.Core.Stored].
func (g *Gate) Stored(p picker.Permit, response sessions.Key) {
	if p.Program == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.flights[p.Program]; f != nil {
		f.group.Stored(f.handle, response)
	}
}

// Seen reports that another replica has dispatched a request of a session. It does nothing if no
// programs are admitted.
func (g *Gate) Seen(session sessions.Key) {
	if g.config.Load() == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.cores) != 1 { // the base model of a new session is unknown
		for _, grp := range g.cores {
			if grp.Knows(session) {
				grp.Seen(g.now(), session)
			}
		}
		return
	}
	for _, grp := range g.cores {
		grp.Seen(g.now(), session)
	}
}

// Leave implements picker.Gate.
func (g *Gate) Leave(p picker.Permit, service float64) {
	if p.Program == 0 {
		g.o.Next.Leave(p, service)
		return
	}
	if f := g.drop(p); f != nil {
		g.o.Next.Leave(f.permit, service)
	}
}

// Poll admits kept requests whose time has come.
func (g *Gate) Poll() {
	c := g.config.Load()
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	for model, grp := range g.cores {
		if c == nil {
			grp.SetLimit(math.Inf(1))
		} else if now-grp.measured >= measureEvery {
			grp.measured = now
			grp.SetLimit(c.Share * capacity(g.o.Pool.Snapshot(), model))
		}
		grp.Advance(now)
		g.deliver(grp)
	}
}

// deliver wakes the requests that are no longer kept. The caller holds g.mu.
func (g *Gate) deliver(grp *group) {
	g.woken = grp.Woken(g.woken[:0])
	for _, h := range g.woken {
		if f := grp.kept[h]; f != nil {
			delete(grp.kept, h)
			f.wake()
		}
	}
}

// Status returns the state by base model, in their order.
func (g *Gate) Status() (out []programs.Status) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for model, grp := range g.cores {
		st := grp.Status()
		st.Model = model
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b programs.Status) int { return strings.Compare(a.Model, b.Model) })
	return out
}

// entry implements picker.QueueEntry.
type entry struct {
	g      *Gate
	r      *request.Request
	permit picker.Permit
	wake   chan struct{}     // nil: its program is admitted
	next   picker.QueueEntry // in the next gate; nil: none
}

// Expected implements picker.QueueEntry.
func (e *entry) Expected() float64 {
	if e.next != nil {
		return e.next.Expected()
	}
	return 0
}

// Wait implements picker.QueueEntry.
func (e *entry) Wait(ctx context.Context, most time.Duration) (waits bool, err error) {
	if e.wake != nil {
		for waited := time.Duration(0); e.wake != nil; waited += pollEvery {
			if most > 0 && waited >= most {
				return true, nil
			}
			if err := e.sleep(ctx); err != nil {
				e.g.drop(e.permit)
				return false, err
			}
		}
		if err := e.enter(ctx); err != nil || e.next == nil {
			return false, err
		}
	}
	waits, err = e.next.Wait(ctx, most)
	if err != nil && !waits {
		e.g.drop(e.permit)
	}
	return waits, err
}

// sleep returns when the request is no longer kept, or after pollEvery.
func (e *entry) sleep(ctx context.Context) error {
	timer := time.NewTimer(pollEvery)
	defer timer.Stop()
	select {
	case <-e.wake:
		e.wake = nil
	case <-timer.C:
		e.g.Poll()
	case <-ctx.Done():
		return request.Errorf(request.ReasonCancelled, "the client disconnected")
	}
	return nil
}

// enter passes the request to the next gate.
func (e *entry) enter(ctx context.Context) error {
	p, next, err := e.g.o.Next.Enter(ctx, e.r)
	if err != nil {
		e.g.drop(e.permit)
		return err
	}
	e.next = next
	e.g.mu.Lock()
	if f := e.g.flights[e.permit.Program]; f != nil {
		f.permit = p
	}
	e.g.mu.Unlock()
	return nil
}

// drop ends a request without returning its permit of the next gate. It returns nil if the request has
// ended before.
func (g *Gate) drop(p picker.Permit) *flight {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.flights[p.Program]
	if f != nil {
		delete(g.flights, p.Program)
		delete(f.group.kept, f.handle)
		f.group.Release(g.now(), f.handle)
		g.deliver(f.group)
	}
	return f
}

// Withdraw implements picker.QueueEntry.
func (e *entry) Withdraw() {
	if e.next != nil {
		e.next.Withdraw()
	}
	e.g.drop(e.permit)
}

func (g *Gate) describe() {
	g.tracked = prometheus.NewDesc("grapevine_programs", "Programs of agents that are tracked.", nil, nil)
	g.kept = prometheus.NewDesc("grapevine_program_requests_kept", "Requests that wait because running programs fill the engines' memory.", nil, nil)
	g.footprint = prometheus.NewDesc("grapevine_program_tokens", "Tokens of context that running programs hold.", nil, nil)
	g.untracked = prometheus.NewDesc("grapevine_program_requests_untracked_total", "Requests of programs beyond the number that is tracked.", nil, nil)
}

// Describe implements prometheus.Collector.
func (g *Gate) Describe(out chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{g.tracked, g.kept, g.footprint, g.untracked} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (g *Gate) Collect(out chan<- prometheus.Metric) {
	var sum programs.Status
	for _, st := range g.Status() {
		sum.Programs, sum.Kept, sum.Footprint, sum.Untracked = sum.Programs+st.Programs, sum.Kept+st.Kept, sum.Footprint+st.Footprint, sum.Untracked+st.Untracked
	}
	out <- prometheus.MustNewConstMetric(g.tracked, prometheus.GaugeValue, float64(sum.Programs))
	out <- prometheus.MustNewConstMetric(g.kept, prometheus.GaugeValue, float64(sum.Kept))
	out <- prometheus.MustNewConstMetric(g.footprint, prometheus.GaugeValue, sum.Footprint)
	out <- prometheus.MustNewConstMetric(g.untracked, prometheus.CounterValue, float64(sum.Untracked))
}
