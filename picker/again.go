package picker

import (
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// tries says what the proxy may do when the first endpoint of a request fails before its
// answer. What an engine keeps or goes on with by itself is asked for once, and so is a prompt
// of which engines may die. Others lose nothing by a second engine that begins anew. The next
// endpoint is the only one then, so that both must be well: a proxy that is told nothing goes
// down the whole list, where no engine has begun.
func (s *Scheduler) tries(c *Cycle, f *flight) Tries {
	r, prompt := f.request, f.vitals.prompt
	within := s.again.Add(c.Now, 1, 0)
	switch {
	case r.Background, r.Previous != "", s.prompts.Suspected(prompt, c.Now):
		return TriesNone
	case !within, r.Kind != request.KindChat && r.Kind != request.KindCompletions, s.prompts.Failing(prompt, c.Now):
		return TriesSafe
	}
	if len(f.Endpoints) < 2 || len(c.plan.Order) < 2 || len(c.plan.Also) > 0 || !c.well(0) || !c.well(1) {
		return TriesSafe
	}
	return TriesOnce
}

// well reports whether nothing speaks against the endpoint at a place of the plan.
func (c *Cycle) well(place int) bool {
	ep := c.endpoints[c.plan.Order[place]]
	return !far(ep) && ep.Share() == health.Full && !ep.Down() && !ep.Tracker().FullAt(c.Now.UnixNano())
}
