package served

import (
	"context"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Confirm has the lists of the pool's engines read again, since none of them is
// known to serve the model, and returns when that is done, when the timeout is
// over, or when ctx ends. It returns at once when the lists are proof already:
// they are young, and have been read for this name before.
//
// Engines that never gave a list, or whose last reading failed, are not waited
// for: requests for their models are placed without proof.
func (r *Reader) Confirm(ctx context.Context, model string) {
	waits := r.doubt(model)
	if len(waits) == 0 {
		return
	}
	r.metrics.confirms.Inc()
	timer := time.NewTimer(r.opts.Timeout)
	defer timer.Stop()
	for _, done := range waits {
		select {
		case <-done:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// doubt begins the readings that the name needs and returns what ends with them.
func (r *Reader) doubt(model string) []<-chan struct{} {
	now := r.opts.Now()
	snapshot := r.opts.Pool.Snapshot()
	r.mu.Lock()
	defer r.mu.Unlock()
	first := now.Sub(r.confirmed[model]) > endpoint.ModelsFresh
	var waits []<-chan struct{}
	for _, ep := range snapshot.Endpoints {
		e := r.engines[ep.ID]
		list, at := ep.EngineModels()
		if e == nil || list == nil || e.fails > 0 {
			continue
		}
		if first || now.Sub(at) > endpoint.ModelsFresh {
			waits = append(waits, r.readAgain(ep.ID, e, now))
			continue
		}
		for _, under := range []chan struct{}{e.reading, e.after} { // perhaps for this name
			if under != nil {
				waits = append(waits, under)
			}
		}
	}
	if first {
		r.remember(model, now)
	}
	return waits
}

// readAgain returns what is closed when a reading ends that begins now or later.
// The caller holds mu.
func (r *Reader) readAgain(id block.EndpointID, e *engine, now time.Time) <-chan struct{} {
	if e.reading == nil && now.Sub(e.tried) >= pause {
		r.begin(id, e, now)
		return e.reading
	}
	if e.after == nil {
		e.after = make(chan struct{})
		e.next = e.tried.Add(pause)
		r.soon()
	}
	return e.after
}

// remember notes that lists were read for a name. When the memory is full it
// starts again, which costs one more reading for each name.
func (r *Reader) remember(model string, now time.Time) {
	if len(r.confirmed) >= doubtNames {
		clear(r.confirmed)
	}
	if len(model) <= maxName {
		r.confirmed[model] = now
	}
}
