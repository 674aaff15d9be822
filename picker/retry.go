package picker

import (
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// tries says what the proxy may do when the first endpoint of a request fails before its
// answer. What an engine keeps or goes on with by itself is asked for once, and so is a prompt
// of which engines may die. Others lose nothing by a second engine that begins anew. The next
// endpoint is the only one then, so that both must be well: a proxy that is told nothing goes
// down the whole list, where no engine has begun.
func (s *Scheduler) tries(c *cycle.Cycle, f *flight) request.Tries {
	r, prompt := f.request, f.vitals.prompt
	within := s.again.Add(c.Now, 1, 0)
	switch {
	case r.Background, r.Previous != "", s.prompts.Suspected(prompt, c.Now):
		return request.TriesNone
	case !within, r.Kind != request.KindChat && r.Kind != request.KindCompletions, s.prompts.Failing(prompt, c.Now):
		return request.TriesSafe
	}
	if len(f.Endpoints) < 2 || len(c.Plan().Order) < 2 || len(c.Plan().Also) > 0 || !c.Healthy(0) || !c.Healthy(1) {
		return request.TriesSafe
	}
	return request.TriesOnce
}
