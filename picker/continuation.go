package picker

import (
	"strings"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// nameContinuations adds the header with the next endpoints of the plan, at which the sidecar may
// continue the stream after the death of its engine. Suspected prompts have one destination, so they
// get none.
func (f *flight) nameContinuations(c *cycle.Cycle) {
	n := f.s.opts.Continuations
	if n <= 0 || !f.request.Stream || f.request.Kind != request.KindChat && f.request.Kind != request.KindCompletions {
		return
	}
	if f.ep.IsRemote() || f.s.prompts.Suspected(f.evidence.prompt, c.Now) {
		return
	}
	var names []string
	for _, i := range c.Plan().Order[1:] {
		if ep := c.All(i).Endpoint; len(names) < n && !ep.IsRemote() && ep != f.ep {
			names = append(names, ep.Address)
		}
	}
	if len(names) > 0 {
		f.SetHeaders = append(f.SetHeaders, request.HeaderSet{Name: request.HeaderContinuation, Value: strings.Join(names, ",")})
	}
}
