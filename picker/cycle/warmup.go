package cycle

import (
	"cmp"
	"slices"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// MayWarmUp reports whether a scorer may ask for a warm-up of candidate k: a request of one
// token with the same prompt, by which k comes to hold it while this request goes where it
// is best. None may be asked for where an engine keeps what the request goes on with, or
// where some endpoint does a part of requests only, since what one computes there another
// one uses; nor one by which an engine would load an adapter.
func (c *Cycle) MayWarmUp(k int) bool {
	if !c.warmUps || c.pinned {
		return false
	}
	for i := range c.views {
		if c.views[i].Role != endpoint.RoleDecode {
			return false
		}
	}
	return c.adapterRuns(c.At(k))
}

// adapterRuns reports whether the engine at v has the adapter of the request at hand, or it
// needs none.
func (c *Cycle) adapterRuns(v *View) bool {
	l, adapter := v.LoRA(), cmp.Or(c.Request.Adapter, c.Request.Target)
	if l == nil {
		return c.Request.Adapter == ""
	}
	return adapter == v.Base() || slices.Contains(l.Running, adapter)
}

// WarmUp asks that candidate k be sent the prompt as well. The last call counts.
func (c *Cycle) WarmUp(k int) { c.plan.WarmUp = c.live[k] }

// WarmingUp returns the position among all candidates of who is to be sent the prompt as
// well, -1 when nobody is: one endpoint serves the whole request at its own port, and
// another one is to be warmed up.
func (c *Cycle) WarmingUp() int32 {
	p := &c.plan
	if p.WarmUp < 0 || len(p.Also) > 0 || p.New >= 0 || p.Port != 0 || p.WarmUp == p.Order[0] || c.First().IsRemote() {
		return -1
	}
	return p.WarmUp
}
