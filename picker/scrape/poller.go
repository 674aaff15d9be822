package scrape

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/loglines"
	"github.com/grapevine-epp/grapevine/internal/ticks"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// ErrNotPolled means that the poller does not have the endpoint.
var ErrNotPolled = errors.New("scrape: the endpoint is not polled")

// restFactor sets the rest after a reading that took d to at least restFactor × d, so that slow
// pages are read less often.
const restFactor = 4

// Poller keeps the gauges of a pool's endpoints up to date.
type Poller struct {
	opts     Options
	metrics  *metrics
	scanners scanners
	ctx      context.Context
	cancel   context.CancelFunc
	wake     chan struct{}
	done     chan struct{}
	readings sync.WaitGroup

	mu      sync.Mutex
	lines   loglines.Lines // written without the lock
	closed  bool
	targets []*target
	fast    int       // number of targets near saturation in the last sweep
	next    time.Time // of the next sweep
	byID    map[block.EndpointID]*target
}

// target is the poller's state of one endpoint. Poller.mu guards it. While inFlight is set, the
// reading's goroutine may read request, transport and ctx.
type target struct {
	ep      *endpoint.Endpoint
	request *http.Request
	spare   *http.Request // request for the alternative path; nil if the path is configured
	onOther bool          // request currently uses otherPath
	// transport is per endpoint, since a shared one retains state for every address it has used.
	transport  http.RoundTripper
	ctx        context.Context // ends with the endpoint
	cancel     context.CancelFunc
	due        time.Time // next regular reading
	fastDue    time.Time // next reading if there is demand
	rested     time.Time // earliest next reading, by the duration of the last one
	inFlight   bool
	again      bool // read immediately
	asked      []chan<- outcome
	waiting    []chan<- outcome // waiting for the reading in flight
	status     EndpointStatus
	lastDown   bool // this poller marked it as down
	unanswered int  // consecutive unanswered readings
}

// outcome is the result of one reading.
type outcome struct {
	page Page
	err  error
}

// Open starts a poller without endpoints.
func Open(o Options) (*Poller, error) {
	o.complete()
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	p := &Poller{
		opts: o, metrics: m,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		byID: map[block.EndpointID]*target{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if err := m.watch(o.Registerer, p); err != nil {
		p.cancel()
		return nil, err
	}
	go p.run()
	return p, nil
}

// Close cancels all readings, stops the goroutines and waits until they have ended.
func (p *Poller) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	<-p.done
	p.readings.Wait()
	p.mu.Lock()
	for _, t := range p.targets {
		p.drop(t)
	}
	p.targets = nil
	p.mu.Unlock()
}

// Apply handles a change of the pool without blocking. Pass it to endpoint.Pool.Subscribe.
func (p *Poller) Apply(c endpoint.Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	for _, ep := range c.Removed {
		if t := p.byID[ep.ID]; t != nil && t.ep.Addr == ep.Addr {
			p.remove(t)
		}
	}
	for _, list := range [][]*endpoint.Endpoint{c.Added, c.Changed} {
		for _, ep := range list {
			p.add(ep)
		}
	}
	p.rouse()
}

// add adds an endpoint, or updates the labels of a known one.
func (p *Poller) add(ep *endpoint.Endpoint) {
	t := p.byID[ep.ID]
	if t != nil && t.ep.Addr == ep.Addr && t.ep.Spec.Metrics == ep.Spec.Metrics {
		t.ep = ep
		return
	}
	if t != nil {
		p.remove(t)
	}
	t = &target{ep: ep}
	t.ctx, t.cancel = context.WithCancel(p.ctx)
	if t.transport = p.opts.Transport; t.transport == nil {
		t.transport = newTransport(&p.opts)
	}
	t.status = EndpointStatus{Address: ep.Address, State: StatePending}
	var err error
	if t.request, t.spare, err = p.opts.newRequests(ep); err != nil {
		t.status.State, t.status.Error = StateFailing, err.Error()
		p.opts.Log.Error("metrics address cannot be used", "endpoint", ep.Address, "error", err)
	}
	now := p.opts.Now()
	t.due = now.Add(time.Duration(p.opts.Random() * float64(p.spread())))
	t.fastDue = t.due
	p.byID[ep.ID] = t
	p.targets = append(p.targets, t)
}

// spread is the time over which first readings of new endpoints are distributed: short for small
// pools, without a burst for large ones.
func (p *Poller) spread() time.Duration {
	return min(p.opts.slowOf(len(p.targets)), p.opts.fast()+time.Duration(len(p.targets))*time.Millisecond)
}

func (p *Poller) remove(t *target) {
	delete(p.byID, t.ep.ID)
	for i := range p.targets {
		if p.targets[i] == t {
			last := len(p.targets) - 1
			p.targets[i] = p.targets[last]
			p.targets[last] = nil
			p.targets = p.targets[:last]
			break
		}
	}
	p.drop(t)
}

// drop ends a removed target.
func (p *Poller) drop(t *target) {
	t.cancel()
	if own, ok := t.transport.(*transport); ok {
		own.Close()
	}
	for _, ch := range t.asked {
		ch <- outcome{err: ErrNotPolled}
	}
	t.asked = nil
}

// RefreshNow schedules an immediate reading of the endpoint, even after failures, and another one
// if a reading is in progress. It does not wait.
func (p *Poller) RefreshNow(ep *endpoint.Endpoint) { p.ask(ep, nil) }

// RefreshSoon is RefreshNow unless the page was read recently and took long. A large or slow page
// is a burden on its engine and is then read on schedule.
func (p *Poller) RefreshSoon(ep *endpoint.Endpoint) {
	p.mu.Lock()
	t := p.byID[ep.ID]
	rests := t != nil && (t.inFlight || p.opts.Now().Before(t.rested))
	p.mu.Unlock()
	if !rests {
		p.ask(ep, nil)
	}
}

// Refresh is RefreshNow, but waits for the reading and returns its page. With ErrNoGauges the page
// still has the process start time, if known.
func (p *Poller) Refresh(ctx context.Context, ep *endpoint.Endpoint) (Page, error) {
	told := make(chan outcome, 1)
	if !p.ask(ep, told) {
		return Page{}, ErrNotPolled
	}
	select {
	case o := <-told:
		return o.page, o.err
	case <-ctx.Done():
		return Page{}, ctx.Err()
	}
}

func (p *Poller) ask(ep *endpoint.Endpoint, told chan<- outcome) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.byID[ep.ID]
	if p.closed || t == nil || t.request == nil || t.ep.Addr != ep.Addr {
		return false
	}
	t.again = true
	if told != nil {
		t.asked = append(t.asked, told)
	}
	p.rouse()
	return true
}

func (p *Poller) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Probe acquires and releases the poller's lock.
func (p *Poller) Probe() {
	p.mu.Lock()
	defer p.mu.Unlock()
}

// run sweeps over all endpoints. A sweep over a thousand endpoints takes microseconds, less than a
// timer per endpoint.
func (p *Poller) run() {
	defer close(p.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-timer.C:
		case <-p.wake:
		}
		p.opts.Watch.Working()
		timer.Reset(p.sweep())
		p.opts.Watch.Waiting()
	}
}

const (
	// together is how many readings start at the same instant while that keeps the instants of a pool
	// at least slotLeast apart. It amortizes wake-ups of the process and still keeps bursts small.
	together  = 8
	slotLeast = 50 * time.Millisecond
	// demandEvery is how often demand is checked that rises without a reading.
	demandEvery = 500 * time.Millisecond
)

// slot returns the first instant after a time at which t may be read. Targets that are read at the same
// interval share instants: of endpoints many, about together are read at each.
func (p *Poller) slot(t *target, after time.Time, every time.Duration, endpoints int) time.Time {
	least := min(max(every/8, time.Millisecond), slotLeast)
	slots := min(max((endpoints+together-1)/together, 1), max(int(every/least), 1))
	shift := every / time.Duration(slots) * time.Duration(int(t.ep.ID)%slots)
	return ticks.Next(after.Add(-shift), every).Add(shift)
}

// sweep starts the readings that are due, and returns the time until the next sweep.
func (p *Poller) sweep() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, fast := p.opts.Now(), 0
	p.next = now.Add(p.opts.Slow)
	for _, t := range p.targets {
		due := !t.inFlight && t.request != nil && p.due(t, now)
		if t.status.Fast {
			fast++
		}
		if !due {
			if event := t.event(); event.Before(p.next) {
				p.next = event
			}
			continue
		}
		t.inFlight, t.again = true, false
		t.waiting, t.asked = append(t.waiting, t.asked...), t.asked[:0]
		p.readings.Add(1)
		go p.read(t, t.ep, now)
	}
	p.fast = fast
	return max(p.next.Sub(now), time.Millisecond)
}

// distant is the event of a target that has none.
var distant = time.Unix(1<<40, 0)

// event returns when the target has to be looked at again: for a reading, or because demand may have
// risen. The end of a reading in flight plans the next event.
func (t *target) event() time.Time {
	switch {
	case t.inFlight || t.request == nil:
		return distant
	case t.status.Failures == 0 && t.fastDue.Before(t.due):
		return t.fastDue
	}
	return t.due
}

func (p *Poller) due(t *target, now time.Time) bool {
	if t.again {
		return true
	}
	if !now.Before(t.due) {
		t.status.Fast = t.status.Failures == 0 && p.opts.Demand(t.ep)
		return true
	}
	if now.Before(t.fastDue) || t.status.Failures > 0 {
		return false
	}
	t.status.Fast = p.opts.Demand(t.ep)
	if !t.status.Fast {
		t.fastDue = ticks.Next(now, demandEvery) // check demand again later, not in every sweep
	}
	return t.status.Fast
}

// plan schedules the next reading of a target after one that began at start.
func (p *Poller) plan(t *target, start, end time.Time) {
	slow := p.opts.slowOf(len(p.targets))
	wait := slow
	// An engine without a readable page still proves by its responses that it is alive. Only
	// unanswered readings back off.
	for n := 1; n < t.unanswered && wait < p.opts.MaxBackoff; n++ {
		wait *= 2
	}
	wait = min(wait, max(p.opts.MaxBackoff, slow))
	rested := end
	if took := end.Sub(start); took < 2*p.opts.Timeout { // otherwise this process was paused
		rested = end.Add(restFactor * took)
	}
	if t.rested = (time.Time{}); t.unanswered == 0 {
		t.rested = rested
	}
	early := slow * 9 / 10 // how much earlier than after wait, to meet a slot
	if t.status.Fast = t.status.Failures == 0 && p.opts.Demand(t.ep); t.status.Fast {
		early /= 2 // it will hardly be needed
		pace := p.opts.fastOf(p.fast)
		t.fastDue = p.slot(t, later(start.Add(pace/10), rested), pace, p.fast)
	} else {
		t.fastDue = later(ticks.Next(end, demandEvery), rested)
	}
	t.due = p.slot(t, later(start.Add(wait-early), rested), slow, len(p.targets))
	if t.due.After(end.Add(2 * p.opts.MaxBackoff)) {
		t.due = end.Add(2 * p.opts.MaxBackoff)
	}
	if t.again || t.event().Before(p.next) {
		p.rouse()
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
