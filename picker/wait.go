package picker

import (
	"context"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// Gate queues requests for capacity before their prompt is rendered and before the pool is read. A
// waiting request holds no other resources, and its decision uses the state after the wait. It is
// safe for concurrent use.
type Gate interface {
	// Enter requests a permit for r without blocking. If entry is nil, r has the permit, or err is
	// a *request.Error with the reason of a rejection. Otherwise r has the permit once entry.Wait
	// has returned without an error. The permit must then be passed to Leave exactly once.
	Enter(ctx context.Context, r *request.Request) (p Permit, entry QueueEntry, err error)
	// Leave returns a permit after the answer has ended or none was attempted. service is the
	// engine time in seconds, below 0 if unknown.
	Leave(p Permit, service float64)
}

// QueueEntry is a request in the queue of a Gate. It is used by one goroutine, which must call Wait
// until the request no longer waits, or Withdraw.
type QueueEntry interface {
	// Expected returns the expected further wait in seconds, 0 if unknown, as of the last call of
	// Enter or Wait.
	Expected() float64
	// Wait returns when the request is dispatched or rejected, soon after ctx ends, or after most
	// (0: no limit). waits is true if it still waits. The error is a *request.Error.
	Wait(ctx context.Context, most time.Duration) (waits bool, err error)
	// Withdraw removes the request, because a remote cluster serves it.
	Withdraw()
}

// Permit identifies a request's share of a pool's capacity. The zero Permit is none.
type Permit struct {
	Queue   uint32
	Handle  uint64
	Program uint64 // number at a gate of programs, 0 for none
}

// ProgramGate is a Gate that admits agent runs by their use of memory.
type ProgramGate interface {
	// Place reports the prompt tokens of a dispatched request, and how many of them its engine has
	// to compute.
	Place(p Permit, input, missing int)
	// Stored reports that an engine stores its answer, so that a later request may continue it.
	Stored(p Permit, response sessions.Key)
}

// openGate is a Gate that admits all requests at once.
type openGate struct{}

// Enter implements Gate.
func (openGate) Enter(context.Context, *request.Request) (Permit, QueueEntry, error) {
	return Permit{}, nil, nil
}

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

// cleared is a request that may be dispatched: to any endpoint, or only to a remote cluster.
type cleared struct {
	admitted
	permit      Permit
	queueWait   float64 // expected further wait in seconds, if it still waits for its permit
	gateRefusal error   // why the Gate rejected it
}

// mayStay reports whether an endpoint of this cluster may serve the request.
func (cl *cleared) mayStay() bool { return cl.queueWait == 0 && cl.gateRefusal == nil }

// reason returns why the request is refused. If only remote clusters were left, that is the reason
// of the Gate, and not err, their reason.
func (cl *cleared) reason(err error) error {
	if cl.gateRefusal != nil {
		return cl.gateRefusal
	}
	return err
}

// queued is the state of a request's wait for a permit.
type queued struct {
	admitted
	permit  Permit
	entry   QueueEntry // nil: it does not wait, or no longer
	refusal error
	pause   time.Duration // until remote clusters are compared again; 0: they never are
	compare bool          // remote clusters are due to be compared
	begun   bool          // the client's proxy was notified of the wait
	span    *tracing.Span
}

// Intervals at which remote clusters are compared with the rest of a wait. Each interval is twice
// the previous one.
const (
	firstComparison = 250 * time.Millisecond
	lastComparison  = 4 * time.Second
)

// unknownWait is a wait in seconds that exceeds any real one.
const unknownWait = 1e6

// enqueue requests a permit. Before, it waits for what the queue of the request depends on, and for
// the location of a stored response. Requests that every endpoint rejects do not enter the queue.
func (s *Scheduler) enqueue(ctx context.Context, a admitted) queued {
	s.awaitModelList(ctx, a.request)
	s.awaitStoredResponse(ctx, a.request)
	q := queued{admitted: a}
	if s.opts.RemoteClusters != nil {
		q.pause, q.compare = firstComparison, true
	}
	if !s.rejectedByAll(a.request) {
		q.span = a.request.Trace.Start(tracing.SpanQueue)
		q.permit, q.entry, q.refusal = s.opts.Gate.Enter(ctx, a.request)
	}
	return q
}

// wait returns when the request has its permit, or when it may be dispatched to a remote cluster
// instead. It returns the reason if the request is rejected.
func (s *Scheduler) wait(ctx context.Context, q *queued) (cleared, error) {
	for q.entry != nil {
		if q.compare {
			q.compare = false
			if rest := q.entry.Expected(); rest > 0 && s.remoteMayTake(q.request, rest) {
				return cleared{admitted: q.admitted, queueWait: rest}, nil
			}
		}
		q.sleep(ctx)
	}
	q.span.End()
	switch {
	case q.refusal == nil:
		return cleared{admitted: q.admitted, permit: q.permit}, nil
	case lacksCapacity(q.refusal) && s.remoteMayTake(q.request, unknownWait):
		return cleared{admitted: q.admitted, gateRefusal: q.refusal}, nil
	default:
		return cleared{}, q.refusal
	}
}

// sleep returns when the request no longer waits, or when remote clusters are due to be compared.
func (q *queued) sleep(ctx context.Context) {
	if !q.begun && q.request.Waits != nil {
		q.request.Waits()
	}
	q.begun = true
	waits, err := q.entry.Wait(ctx, q.pause)
	if !waits {
		q.entry, q.refusal = nil, err
	}
	q.compare, q.pause = waits, min(2*q.pause, lastComparison)
}

// waiting reports whether the request is in the queue.
func (q *queued) waiting() bool { return q.entry != nil }

// withdraw removes the request from the queue if it is in it.
func (q *queued) withdraw() {
	if q.entry != nil {
		q.entry.Withdraw()
		q.span.End()
	}
}

// lacksCapacity reports whether the Gate rejected a request because this cluster is full or empty.
func lacksCapacity(err error) bool {
	reason := request.ReasonOf(err)
	return reason == request.ReasonSaturated || reason == request.ReasonNoEndpoints
}

// awaitModelList returns when the model lists are known to be recent, if no endpoint is known to
// serve the request's model.
func (s *Scheduler) awaitModelList(ctx context.Context, r *request.Request) {
	if s.opts.Lists != nil && !s.opts.Pool.Snapshot().MayServe(r.Target) {
		s.opts.Lists.Confirm(ctx, r.Target)
	}
}

// storedResponseWait is how long a request waits for the location of the response that it
// continues: another replica may have dispatched that response just before.
const storedResponseWait = 250 * time.Millisecond

// awaitStoredResponse returns when the engine that stores the previous response is known, or after
// storedResponseWait.
func (s *Scheduler) awaitStoredResponse(ctx context.Context, r *request.Request) {
	bound, end := s.opts.Sessions.WaitBinding(sessions.ResponseKey(r.Previous))
	if bound == nil {
		return
	}
	defer end()
	timer := time.NewTimer(storedResponseWait)
	defer timer.Stop()
	select {
	case <-bound:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// rejectedByAll reports whether every endpoint is known to reject the request. It must not queue
// then, since its body would use memory only to be rejected.
func (s *Scheduler) rejectedByAll(r *request.Request) bool {
	snap, now := s.opts.Pool.Snapshot(), s.opts.Now()
	takes := func(ep *endpoint.Endpoint) bool { return !ep.Refuses(r.Target, now) }
	return !s.opts.PlaceUnknown && len(snap.Endpoints) > 0 && !snap.MayServe(r.Target) && !slices.ContainsFunc(snap.Endpoints, takes)
}
