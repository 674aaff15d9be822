package cycle

import (
	"cmp"
	"slices"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// MayWarmUp reports whether a scorer may request a warm-up of candidate k. A warm-up is a one-token
// request with the same prompt that fills k's cache while the original request is sent to the best
// endpoint. It returns false for a pinned conversation, in pools with split roles (one endpoint
// computes blocks that another one uses), and if the engine would have to load an adapter.
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

// adapterRuns reports whether the engine at v has loaded the request's adapter, or the request
// needs none.
func (c *Cycle) adapterRuns(v *View) bool {
	l, adapter := v.LoRA(), cmp.Or(c.Request.Adapter, c.Request.Target)
	if l == nil {
		return c.Request.Adapter == ""
	}
	return adapter == v.Base() || slices.Contains(l.Running, adapter)
}

// WarmUp requests a warm-up of candidate k. The last call counts.
func (c *Cycle) WarmUp(k int) { c.plan.WarmUp = c.live[k] }

// WarmingUp returns the position among all candidates of the endpoint to warm up, or -1. A warm-up
// requires that a single other endpoint serves the whole request at its own port.
func (c *Cycle) WarmingUp() int32 {
	p := &c.plan
	if p.WarmUp < 0 || len(p.Also) > 0 || p.New >= 0 || p.Port != 0 || p.WarmUp == p.Order[0] || c.First().IsRemote() {
		return -1
	}
	return p.WarmUp
}
