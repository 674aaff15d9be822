package scrape

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/loglines"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// ErrNotPolled means that the endpoint is not, or no longer, among those that
// the poller was told of.
var ErrNotPolled = errors.New("scrape: the endpoint is not polled")

// restFactor: a reading that took d is followed by a rest of at least
// restFactor × d, so that a slow page is asked for less often.
const restFactor = 4

// Poller keeps the gauges of a pool's endpoints fresh.
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
	fast    int // of targets, near saturation at the last sweep
	byID    map[block.EndpointID]*target
}

// target is one endpoint as the poller sees it. mu of the Poller guards it;
// while inFlight is set, the reading's goroutine may read request, transport
// and ctx.
type target struct {
	ep      *endpoint.Endpoint
	request *http.Request
	spare   *http.Request // of the other path; nil where the path is not ours to choose
	onOther bool          // request is that of otherPath
	// transport is the endpoint's own: one for all keeps something of every address
	// that it was ever asked for.
	transport http.RoundTripper
	ctx       context.Context // ends with the endpoint
	cancel    context.CancelFunc
	due       time.Time // when it is read without further cause
	fastDue   time.Time // when it is read if there is demand
	rested    time.Time // when it may be read again, for what the last answer took
	inFlight  bool
	again     bool // read at once, whatever is due
	asked     []chan<- outcome
	waiting   []chan<- outcome // to be told of the reading in flight
	status    EndpointStatus
	lastDown  bool // we have marked it as down
	unheard   int  // readings in a row that nobody answered
}

// outcome is what became of one reading.
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

// Close cancels all readings, stops the goroutines and waits for them.
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

// Apply follows a change of the pool. It does not wait for anything; hand it
// to endpoint.Pool.Subscribe.
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

// add takes an endpoint in, or gives a known one its new labels.
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

// spread is the time over which new endpoints are read first: soon for a small
// pool, without a burst for a large one.
func (p *Poller) spread() time.Duration {
	return min(p.opts.Slow, p.opts.fast()+time.Duration(len(p.targets))*time.Millisecond)
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

// drop ends a target that is in no list any more.
func (p *Poller) drop(t *target) {
	t.cancel()
	if own, ok := t.transport.(*http.Transport); ok && p.opts.Transport == nil {
		own.CloseIdleConnections()
	}
	for _, ch := range t.asked {
		ch <- outcome{err: ErrNotPolled}
	}
	t.asked = nil
}

// RefreshNow has the endpoint read at once, whatever is due, even after
// failures, and once more if a reading is under way that began before. It does
// not wait.
func (p *Poller) RefreshNow(ep *endpoint.Endpoint) { p.ask(ep, nil) }

// RefreshSoon is RefreshNow unless the page was answered a moment ago and took long: a page
// that is large, or slow to make, is a burden for its engine. It is read in its turn then.
func (p *Poller) RefreshSoon(ep *endpoint.Endpoint) {
	p.mu.Lock()
	t := p.byID[ep.ID]
	rests := t != nil && (t.inFlight || p.opts.Now().Before(t.rested))
	p.mu.Unlock()
	if !rests {
		p.ask(ep, nil)
	}
}

// Refresh is RefreshNow that waits for the reading and returns its page. With
// ErrNoGauges the page still says when the process started, if it knows.
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

// Probe takes the poller's lock and releases it.
func (p *Poller) Probe() {
	p.mu.Lock()
	defer p.mu.Unlock()
}

// run looks at all endpoints again and again. A sweep over a thousand of them
// costs some microseconds, less than a timer for each.
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

// together is how many readings are meant to begin in one sweep: what waking
// the process costs is then shared, and what a sweep brings is still little.
const together = 4

// pause is the time from one sweep to the next.
func (p *Poller) pause(fast bool) time.Duration {
	pace := p.opts.fastOf(p.fast)
	least := min(max(pace/8, time.Millisecond), 50*time.Millisecond)
	if fast {
		return least
	}
	return max(least, min(together*p.opts.Slow/time.Duration(max(len(p.targets), 1)), pace/2))
}

// sweep starts the readings that are due, and returns when to look again.
func (p *Poller) sweep() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, fast := p.opts.Now(), 0
	for _, t := range p.targets {
		due := !t.inFlight && t.request != nil && p.due(t, now)
		if t.status.Fast {
			fast++
		}
		if !due {
			continue
		}
		t.inFlight, t.again = true, false
		t.waiting, t.asked = append(t.waiting, t.asked...), t.asked[:0]
		p.readings.Add(1)
		go p.read(t, t.ep, now)
	}
	p.fast = fast
	return p.pause(fast > 0)
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
		t.fastDue = now.Add(p.opts.fast() / 2) // ask again, not at each tick
	}
	return t.status.Fast
}

// plan sets when a target is read next, after a reading that began at start.
func (p *Poller) plan(t *target, start, end time.Time) {
	wait := p.opts.Slow
	// An engine whose page cannot be read, or that has none, still shows by its answers
	// that it lives: only for one that does not answer may the next look wait.
	for n := 1; n < t.unheard && wait < p.opts.MaxBackoff; n++ {
		wait *= 2
	}
	wait = min(wait, max(p.opts.MaxBackoff, p.opts.Slow))
	jitter := 0.9 + 0.2*p.opts.Random()
	rested := end
	if took := end.Sub(start); took < 2*p.opts.Timeout { // else it is this process that stood still
		rested = end.Add(restFactor * took)
	}
	if t.rested = (time.Time{}); t.unheard == 0 {
		t.rested = rested
	}
	t.due = later(start.Add(time.Duration(float64(wait)*jitter)), rested)
	t.fastDue = later(start.Add(time.Duration(float64(p.opts.fastOf(p.fast))*jitter)), rested)
	if t.due.After(end.Add(2 * p.opts.MaxBackoff)) {
		t.due = end.Add(2 * p.opts.MaxBackoff)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
