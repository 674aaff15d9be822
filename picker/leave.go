package picker

import (
	"cmp"
	"context"
	"errors"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// standing is how a request stands at the Gate. The zero value is one that may be served
// here.
type standing struct {
	wait    float64 // seconds for which it is expected to go on waiting
	refused error   // why it may not be served here
}

// never is a wait in seconds that is longer than any.
const never = 1e6

// errStays says that no other cluster is worth leaving the queue for.
var errStays = errors.New("picker: the request stays in the queue")

// mayLeave lets a request that is about to wait at the Gate go to another cluster when it
// would be served sooner there: before it waits, while it does, or, by what is returned,
// when it is refused. That returns where it has gone, nil when it has not; who has gone
// holds no place.
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
