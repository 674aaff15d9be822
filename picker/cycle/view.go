package cycle

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Plan returns the plan, for the handler to fill and for whoever carries it out.
func (c *Cycle) Plan() *Plan { return &c.plan }

// First returns the endpoint that the plan has serve the request, as it is seen here.
// There is one.
func (c *Cycle) First() *View { return &c.views[c.plan.Order[0]] }

// Unserved reports whether every endpoint that the request may go to is sure to refuse its
// model. Then there are no candidates.
func (c *Cycle) Unserved() bool { return c.unserved }

// Rankings returns what each profile that ran has made of the candidates.
func (c *Cycle) Rankings() []*Ranking { return c.rankings[:c.ranked] }

// Avoided lists the endpoints that were left out before any profile ran, until the cycle's
// end.
func (c *Cycle) Avoided() []Avoided { return c.avoided }

// Allowed tells, by position in the pool, where the proxy lets the request go; empty:
// anywhere.
func (c *Cycle) Allowed() []bool {
	if !c.Request.HasSubset {
		return nil
	}
	return c.allowed
}

// Conversation returns what became of a request that goes on with a kept response.
func (c *Cycle) Conversation() ConversationUse { return c.conversation }

// Known returns what candidate i holds, and how many tokens that is worth by tier; zero
// while nobody has asked.
func (c *Cycle) Known(i int32) (run block.Run, worth float64) {
	if c.matched {
		run, worth = c.held[i].Run, c.saves.Of(&c.held[i].Run)
	}
	return run, worth
}

// Predicted returns what a scorer predicted for candidate i; zero when none did.
func (c *Cycle) Predicted(i int32) Prediction {
	if !c.hasPred {
		return Prediction{}
	}
	return c.predicted[i]
}

// SetQueueWait says for how many seconds the request is expected to go on waiting: see
// QueueWait.
func (c *Cycle) SetQueueWait(seconds float64) { c.queued = seconds }

// Replace puts another endpoint in the place of candidate i.
func (c *Cycle) Replace(i int32, ep *endpoint.Endpoint) {
	c.endpoints[i], c.views[i].Endpoint = ep, ep
}

// NotifyChosen tells the observers among the plugins who was first in their profiles.
func (c *Cycle) NotifyChosen() {
	for _, r := range c.Rankings() {
		if i := r.Best(); i >= 0 {
			r.Profile.observed(c, c.endpoints[i])
		}
	}
}
