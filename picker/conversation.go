package picker

import (
	"context"
	"time"

	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// keeps binds a stored response to its engine as soon as the response id arrives, because clients
// read and cancel running responses. It binds again when another engine turns out to have answered.
func (f *flight) keeps(response string, at time.Time) {
	if response != "" && f.request.Kind == request.KindResponses && f.kept != f.ep {
		f.kept = f.ep
		id := f.ep.ID
		if f.ep.IsRemote() {
			id = sessions.Cluster(f.ep.Cluster)
		}
		f.s.opts.Sessions.Bind(sessions.Binding{Session: sessions.ResponseKey(response), Endpoint: id, At: at})
	}
}

// keeperWait is how long a request waits for the location of the response that it continues:
// another replica may have placed that response just before.
const keeperWait = 250 * time.Millisecond

// awaitKeeper returns when the engine that stores the previous response is known, or after
// keeperWait.
func (s *Scheduler) awaitKeeper(ctx context.Context, r *request.Request) {
	bound, end := s.opts.Sessions.WaitBinding(sessions.ResponseKey(r.Previous))
	if bound == nil {
		return
	}
	defer end()
	timer := time.NewTimer(keeperWait)
	defer timer.Stop()
	select {
	case <-bound:
	case <-timer.C:
	case <-ctx.Done():
	}
}
