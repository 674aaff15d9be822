package cycle

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Plan returns the plan. The handler fills it; the scheduler executes it.
func (c *Cycle) Plan() *Plan { return &c.plan }

// First returns the view of the plan's serving endpoint. The plan must not be empty.
func (c *Cycle) First() *View { return c.All(c.plan.Order[0]) }

// Unserved reports whether every allowed endpoint is known to reject the model. Then there are no
// candidates.
func (c *Cycle) Unserved() bool { return c.unserved }

// Rankings returns the results of the profiles that ran.
func (c *Cycle) Rankings() []*Ranking { return c.rankings[:c.ranked] }

// Avoided lists the endpoints that were excluded before any profile ran. It is valid until the
// cycle's end.
func (c *Cycle) Avoided() []Avoided { return c.avoided }

// Allowed returns, by pool position, which endpoints the proxy allows; empty: all.
func (c *Cycle) Allowed() []bool {
	if !c.Request.HasSubset {
		return nil
	}
	return c.allowed
}

// Conversation returns the routing result of a request that continues a stored response.
func (c *Cycle) Conversation() ConversationUse { return c.conversation }

// Known returns the part of the prompt that candidate i holds, and its tier-weighted tokens. Both
// are zero before the first match.
func (c *Cycle) Known(i int32) (run block.Run, worth float64) {
	if c.matched {
		run, worth = c.held[i].Run, c.saves.Of(&c.held[i].Run)
	}
	return run, worth
}

// Predicted returns a scorer's prediction for candidate i, or zero.
func (c *Cycle) Predicted(i int32) Prediction {
	if !c.HasPredicted(i) {
		return Prediction{}
	}
	return c.predicted[i]
}

// SetQueueWait sets the expected further wait in seconds; see QueueWait.
func (c *Cycle) SetQueueWait(seconds float64) { c.queued = seconds }

// Replace substitutes another endpoint for candidate i.
func (c *Cycle) Replace(i int32, ep *endpoint.Endpoint) {
	v := *c.All(i)
	v.Endpoint = ep
	c.endpoints[i], c.views[i] = ep, c.addView(v)
}

// NotifyChosen notifies observer plugins of the first choice of their profiles.
func (c *Cycle) NotifyChosen() {
	for _, r := range c.Rankings() {
		if i := r.Best(); i >= 0 {
			r.Profile.observed(c, c.endpoints[i])
		}
	}
}
