package picker

import (
	"cmp"
	"context"
	"errors"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// standing is the state of a request at the Gate. The zero value may be served in this cluster.
type standing struct {
	wait    float64 // expected further wait in seconds
	refused error   // why it may not be served in this cluster
}

// never is a wait in seconds that exceeds any real one.
const never = 1e6

// errStays means that no remote cluster justifies leaving the queue.
var errStays = errors.New("picker: the request stays in the queue")

// mayLeave lets a request that would wait at the Gate move to a remote cluster that serves it
// sooner. This may happen before the wait, during it, or after a refusal through the returned
// function. The function returns the request's flight, or nil if it stayed. A request that left
// holds no permit.
func (s *Scheduler) mayLeave(ctx context.Context, rules *Rules, r *request.Request, seed uint64) (gone func(refused error) *flight) {
	if s.opts.RemoteClusters == nil {
		return nobodyLeaves
	}
	var away *flight
	leave := func(st standing) bool {
		if s.opts.RemoteClusters.WouldTake(r, cmp.Or(st.wait, never), s.opts.Now()) {
			away, _ = s.place(ctx, rules, r, seed, st)
		}
		return away != nil
	}
	r.Leaves = func(wait float64) bool { return wait > 0 && leave(standing{wait: wait}) }
	return func(refused error) *flight {
		r.Leaves = nil
		if reason := request.ReasonOf(refused); away == nil && (reason == request.ReasonSaturated || reason == request.ReasonNoEndpoints) {
			leave(standing{refused: refused})
		}
		return away
	}
}

func nobodyLeaves(error) *flight { return nil }
