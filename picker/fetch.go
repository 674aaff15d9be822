package picker

import "time"

// learnFetch teaches how long the blocks took: all of the time to first token that
// nothing else was expected to take. Where an engine computes what it was to fetch,
// fetching takes as long as computing, and is not expected to pay any more.
func (f *flight) learnFetch(at time.Time) {
	if f.fetched == 0 || len(f.helpers) == 0 || !f.request.Stream || f.serving != &f.own {
		return
	}
	h, trust := &f.helpers[0], 1.0
	if f.queued.Ahead.Waiting > 0 {
		trust = .4
	}
	rest := f.predicted.TTFT() - f.predicted.Fetch
	f.s.opts.Pool.Fetches().Learn(h.Endpoint(), f.ep, h.Moves, max(at.Sub(f.queued.At).Seconds()-rest, 0), trust)
}
