package pd

import (
	"slices"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// paired reports whether two candidates may serve parts of one request: see endpoint.Paired.
func paired(c *cycle.Cycle, from, to int32) bool {
	return endpoint.Paired(c.All(from).Endpoint, c.All(to).Endpoint)
}

// keepRevision removes the serving endpoint's fallbacks of other revisions. A gateway that tries them
// sends the headers that name endpoints of the serving one's revision.
func keepRevision(c *cycle.Cycle, plan *cycle.Plan, serve int32) {
	revision := c.All(serve).Revision
	plan.Order = slices.DeleteFunc(plan.Order, func(i int32) bool { return c.All(i).Revision != revision })
}

// served returns a predicate for candidates that can serve requests. It is nil if all can. Endpoints
// that only decode cannot while their revision has no prefill endpoint.
func (h *Handler) served(c *cycle.Cycle) func(*cycle.View) bool {
	if h.o.SplitPrefill.Split == nil {
		return nil
	}
	for i := range int32(c.Candidates()) {
		if lacksPrefill(c, c.All(i)) {
			return func(v *cycle.View) bool { return !lacksPrefill(c, v) }
		}
	}
	return nil
}

func lacksPrefill(c *cycle.Cycle, v *cycle.View) bool {
	return v.Revision != "" && consumes(v) && !prefillOf(c, v.Endpoint)
}

// prefillOf reports whether a candidate may compute prompts for an endpoint.
func prefillOf(c *cycle.Cycle, ep *endpoint.Endpoint) bool {
	for i := range int32(c.Candidates()) {
		if v := c.All(i); prefills(v) && endpoint.Paired(v.Endpoint, ep) {
			return true
		}
	}
	return false
}
