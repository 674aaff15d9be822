package picker

import (
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// allowedTries returns which retries the proxy may do if the first endpoint fails before its response.
// Background and stored requests, and prompts that may crash engines, are sent once. Other requests
// lose nothing by a retry. A limited retry uses the next endpoint only, so both must be healthy.
// Without instructions, a proxy tries the whole list.
func (s *Scheduler) allowedTries(c *cycle.Cycle, f *flight) request.Tries {
	r, prompt := f.request, f.evidence.prompt
	within := s.retries.Add(c.Now, 1, 0)
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
