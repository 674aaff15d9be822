package served

import (
	"context"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Confirm makes the lists of the pool's engines be read again for a model that no engine is known
// to serve. It returns when that is done, at the timeout, or when ctx ends. It returns immediately
// if the lists are recent and were already read for this name.
//
// It does not wait for engines that never provided a list or whose last read failed: requests for
// their models are placed unconfirmed.
func (r *Reader) Confirm(ctx context.Context, model string) {
	waits := r.startReads(model)
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

// startReads starts the reads that the name needs and returns channels that close when they end.
func (r *Reader) startReads(model string) []<-chan struct{} {
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
		for _, under := range []chan struct{}{e.reading, e.after} { // possibly for this name
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

// readAgain returns a channel that closes when a read that starts now or later ends. The caller
// holds mu.
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

// remember records that lists were read for a name. A full memory is cleared, which costs one more
// read per name.
func (r *Reader) remember(model string, now time.Time) {
	if len(r.confirmed) >= maxConfirmed {
		clear(r.confirmed)
	}
	if len(model) <= maxName {
		r.confirmed[model] = now
	}
}
