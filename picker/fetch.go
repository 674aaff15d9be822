package picker

import (
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

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

// longLoad is how many fixed parts of a prefill it must take to compute what was loaded
// for its loading to show: so much that what the fixed part is off by counts for little.
const longLoad = 8

// learnLoads teaches what it saves that an engine loads blocks from its host's memory,
// where nobody was ahead and computing them would have taken long enough to tell.
func (f *flight) learnLoads(ttft time.Duration) {
	run := &f.held.Run.Tokens
	loaded := int(run[block.TierCPU])
	if loaded == 0 || int(run[block.TierGPU])+loaded != int(f.held.Run.Total()) || f.queued.Ahead.Waiting > 0 || f.fetched > 0 {
		return
	}
	cost, in := f.ep.Cost(), f.queued.Own.Input
	rest := endpoint.Work{Input: in, New: max(in-int(run[block.TierGPU])-loaded, 1)}
	rests := cost.Prefill(rest)
	computed := cost.Prefill(endpoint.Work{Input: in, New: rest.New + loaded}) - rests
	if computed > longLoad*cost.Base {
		f.s.opts.Pool.Loads().Observe(1-(ttft.Seconds()-cost.Base-rests)/computed, cycle.DefaultTiers[block.TierCPU])
	}
}
