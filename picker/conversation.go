package picker

import (
	"context"
	"time"

	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// keeps binds a response that the engine stores to it as soon as its id is seen, since
// clients read and cancel what is under way, and again when another engine is known to
// have answered.
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

// keeperWait is how long a request waits to hear where the response is kept that it goes on
// with: another replica may have placed that one a moment ago.
const keeperWait = 250 * time.Millisecond

// awaitKeeper returns when it is known who keeps what the request goes on with, or will not be.
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
