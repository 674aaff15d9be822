package cycle

import (
	"slices"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// PlanFetch plans the block fetch that a scorer predicted for the serving endpoint. A plan that
// already moves blocks or names a specific port cannot include it; the blocks are then computed.
func (c *Cycle) PlanFetch() {
	best, plan := c.plan.Order[0], &c.plan
	if !c.HasPredicted(best) || c.predicted[best].Fetched == 0 {
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
		plan.Headers = append(plan.Headers, request.HeaderSet{Name: request.HeaderKVSource, Value: c.endpoints[p.From].Address})
		plan.Also = append(plan.Also, Part{Index: p.From, Moves: int(p.Fetched), SendsOnly: true})
	}
}

// PlanPull names a candidate to the engine that computes the prompt: it may fetch blocks from there. -1
// names none. A source that is already planned stays.
func (c *Cycle) PlanPull(source int32) {
	plan := &c.plan
	if source < 0 || slices.ContainsFunc(plan.Headers, func(h request.HeaderSet) bool { return h.Name == request.HeaderKVSource }) {
		return
	}
	plan.Headers = append(plan.Headers, request.HeaderSet{Name: request.HeaderKVSource, Value: c.endpoints[source].Address})
	plan.Stages = append(plan.Stages, Stage{Kind: StageFetch, Outcome: StageSplit, Chosen: source, Missing: c.WorkAt(plan.Computes()).New})
}
