package picker

import (
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
)

// withhold leaves out the candidates that are sick, or whose queue is full. One
// that is to get a trickle of the requests is left out by lot.
func (c *Cycle) withhold() {
	now, restricted := c.Now.UnixNano(), false
	for _, ep := range c.endpoints {
		restricted = restricted || ep.Share() < health.Full || ep.Tracker().FullAt(now)
	}
	if !restricted {
		return
	}
	c.keep = resize(c.keep, len(c.endpoints))
	for i, ep := range c.endpoints {
		share := ep.Share()
		c.keep[i] = share == health.Full || share > 0 && uint32(c.IntN(health.Full)) < share
	}
	if !c.serves() { // the lot fell on nobody: whoever is not out
		for i, ep := range c.endpoints {
			c.keep[i] = !ep.Down()
		}
		if !c.serves() {
			return
		}
	}
	c.endpoints = kept(c.endpoints, c.keep)
	c.endpoints = prefer(c.endpoints, func(ep *endpoint.Endpoint) bool { return !ep.Tracker().FullAt(now) })
}

// serves reports whether an endpoint that is kept serves requests, or none of
// all does.
func (c *Cycle) serves() bool {
	able := false
	for i, ep := range c.endpoints {
		if ep.Role&endpoint.RoleDecode != 0 {
			if able = true; c.keep[i] {
				return true
			}
		}
	}
	if able {
		return false
	}
	for _, keep := range c.keep {
		if keep {
			return true
		}
	}
	return false
}

func kept(list []*endpoint.Endpoint, keep []bool) []*endpoint.Endpoint {
	left := list[:0]
	for i, ep := range list {
		if keep[i] {
			left = append(left, ep)
		}
	}
	return left
}
