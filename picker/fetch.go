package picker

import (
	"time"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// fetch plans what a scorer expects of the endpoint that serves: that blocks which it
// lacks are fetched from where they are held. A plan that already moves blocks, or
// speaks of one port alone, has no place for it: the prompt is computed then.
func (c *Cycle) fetch() {
	best, plan := c.plan.Order[0], &c.plan
	if !c.hasPred || c.predicted[best].Fetched == 0 {
		return
	}
	if len(plan.Also) > 0 || plan.New >= 0 || plan.Port != 0 || len(plan.Headers) > 0 {
		c.predicted[best] = Prediction{}
		return
	}
	p, work := &c.predicted[best], c.WorkAt(best)
	plan.New, plan.Fetched = max(work.New-int(p.Fetched), 1), p.Fetched
	plan.Stages = append(plan.Stages, Stage{Kind: StageFetch, Outcome: StageSplit, Chosen: p.From, Missing: work.New})
	if p.From >= 0 {
		plan.Headers = append(plan.Headers, HeaderSet{request.HeaderKVSource, c.endpoints[p.From].Address})
		plan.Also = append(plan.Also, Part{Index: p.From, Moves: int(p.Fetched), SendsOnly: true})
	}
}

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
