package picker

import (
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// learnFetch learns how long a block fetch took: the time to first token minus all other predicted
// parts. If an engine recomputes blocks instead of fetching them, the learned time approaches the
// prefill time, and fetching no longer looks worthwhile.
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

// longLoad is the minimum prefill time of loaded blocks, as a multiple of the fixed prefill cost,
// from which loading is measured. Below it, errors in the fixed cost dominate.
const longLoad = 8

// learnLoads learns the saving of loading blocks from host memory, for requests without a queue
// ahead and with enough loaded blocks to measure.
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
