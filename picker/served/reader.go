package served

import (
	"context"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Reader reads engines' lists of models. It is safe for concurrent use.
type Reader struct {
	opts    Options
	metrics *metrics
	slots   chan struct{} // held during a read
	wake    chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	done    sync.WaitGroup

	mu        sync.Mutex
	engines   map[block.EndpointID]*engine
	confirmed map[string]time.Time // names, and when the lists were last read because of each
}

// engine is the state of reading one endpoint's list.
type engine struct {
	address string
	next    time.Time     // next scheduled read
	tried   time.Time     // last read
	reading chan struct{} // closed when the current read ends; nil: none
	after   chan struct{} // closed when the next read ends; nil: no waiter
	fails   int           // consecutive failures

	versions versions
}

// Open starts the reader.
func Open(o Options) (*Reader, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	r := &Reader{
		opts: o, slots: make(chan struct{}, atOnce), wake: make(chan struct{}, 1),
		engines: map[block.EndpointID]*engine{}, confirmed: map[string]time.Time{},
	}
	var err error
	if r.metrics, err = newMetrics(o.Registerer, &r.opts); err != nil {
		return nil, err
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.done.Go(r.run)
	return r, nil
}

// Close stops the reader and waits.
func (r *Reader) Close() {
	r.cancel()
	r.done.Wait()
}

// Changed handles a change of the pool.
func (r *Reader) Changed(c endpoint.Change) {
	r.mu.Lock()
	for _, ep := range c.Removed {
		if e := r.engines[ep.ID]; e != nil && e.after != nil {
			close(e.after)
		}
		delete(r.engines, ep.ID)
	}
	for _, ep := range c.Added {
		r.engines[ep.ID] = &engine{address: ep.Address}
	}
	for _, ep := range c.Changed { // of another engine type, or restarted
		if e := r.engines[ep.ID]; e != nil {
			e.next = e.tried.Add(pause)
		}
	}
	r.mu.Unlock()
	r.soon()
}

// Recheck schedules a read of the endpoint's list: it rejected a model that it was known to serve.
func (r *Reader) Recheck(id block.EndpointID) {
	r.mu.Lock()
	if e := r.engines[id]; e != nil {
		e.next = e.tried.Add(pause)
	}
	r.mu.Unlock()
	r.soon()
}

func (r *Reader) soon() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *Reader) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-r.wake:
		case <-timer.C:
		}
		r.opts.Watch.Working()
		timer.Reset(r.readDue())
		r.opts.Watch.Waiting()
	}
}

// readDue starts the reads that are due and returns the time until the next.
func (r *Reader) readDue() time.Duration {
	now := r.opts.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := r.opts.Every
	for id, e := range r.engines {
		if e.reading != nil {
			continue
		}
		if left := e.next.Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		r.begin(id, e, now)
	}
	return wait
}

// begin starts one read. The caller holds mu.
func (r *Reader) begin(id block.EndpointID, e *engine, now time.Time) {
	if r.ctx.Err() != nil {
		return
	}
	if e.reading, e.after = e.after, nil; e.reading == nil {
		e.reading = make(chan struct{})
	}
	e.tried, e.next = now, now.Add(r.opts.Every)
	r.done.Go(func() { r.read(id, e) })
}

// read reads one engine's list and updates the pool.
func (r *Reader) read(id block.EndpointID, e *engine) {
	result := resultFailed
	select {
	case r.slots <- struct{}{}:
		list, err := r.ask(id, e.address)
		<-r.slots
		if err == nil {
			result = resultSame
			if r.opts.Pool.SetModels(id, list, r.opts.Now()) {
				result = resultChanged
				r.opts.Log.Info("models of an endpoint changed", "endpoint", e.address, "models", len(list.Models))
			}
		} else {
			r.opts.Log.Debug("models of an endpoint not read", "endpoint", e.address, "error", err)
		}
	case <-r.ctx.Done():
	}
	r.metrics.reads.WithLabelValues(result).Inc()
	r.mu.Lock()
	close(e.reading)
	e.reading = nil
	if result != resultFailed {
		e.fails = 0
	} else { // it may be starting
		e.next = e.tried.Add(min(r.opts.Every, firstAgain<<min(e.fails, maxDoublings)))
		e.fails++
	}
	r.mu.Unlock()
	r.soon()
	if result != resultFailed {
		r.renew(id, e)
	}
}

// ask reads one engine's list.
func (r *Reader) ask(id block.EndpointID, address string) (endpoint.ModelList, error) {
	data, err := r.get(address, "/v1/models", maxPage)
	if err != nil {
		return endpoint.ModelList{}, err
	}
	kind := endpoint.EngineUnknown
	if ep := r.opts.Pool.Snapshot().ByID(int(id)); ep != nil {
		kind = kindOf(ep)
	}
	return Decode(data, kind)
}
