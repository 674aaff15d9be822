package cycle

import (
	"net/netip"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// allow records which endpoints the proxy allows.
func (c *Cycle) allow(r *request.Request) {
	c.allowed = c.allowed[:0]
	if !r.HasSubset {
		return
	}
	c.allowed = resize(c.allowed, len(c.Pool.Endpoints))
	clear(c.allowed)
	for _, address := range r.Subset {
		if i := c.Pool.Index(address); i >= 0 {
			c.allowed[i] = true
			continue
		}
		// An address without a port matches every endpoint at that IP.
		ip, err := netip.ParseAddr(strings.Trim(address, "[]"))
		if err != nil {
			continue
		}
		for i, ep := range c.Pool.Endpoints {
			if ep.Addr.Addr().Unmap() == ip.Unmap() {
				c.allowed[i] = true
			}
		}
	}
}

// gatherModel lists the allowed endpoints that serve the model. If there are none, it lists
// endpoints with unknown models, and if there are none either, endpoints that are not known to
// reject the model. A request without a model may use any endpoint.
func (c *Cycle) gatherModel(model string) {
	c.endpoints, c.places, c.unserved = c.endpoints[:0], c.places[:0], false
	if model == "" {
		c.gatherAll()
		return
	}
	c.take(c.Pool.Serving(model))
	if len(c.endpoints) > 0 {
		return
	}
	c.take(c.Pool.Open())
	if len(c.endpoints) > 0 {
		return
	}
	c.gatherAll()
	candidates := len(c.endpoints)
	kept := c.endpoints[:0]
	for _, ep := range c.endpoints {
		if !ep.Refuses(model, c.Now) {
			kept = append(kept, ep)
		}
	}
	c.endpoints = kept
	c.unserved = candidates > 0 && len(kept) == 0
}

// gatherAll lists all allowed endpoints.
func (c *Cycle) gatherAll() {
	c.endpoints, c.places = c.endpoints[:0], c.places[:0]
	for i, ep := range c.Pool.Endpoints {
		if !c.Request.HasSubset || c.allowed[i] {
			c.endpoints, c.places = append(c.endpoints, ep), append(c.places, int32(i))
		}
	}
}

// take lists the allowed endpoints among the given pool positions.
func (c *Cycle) take(positions []int32) {
	for _, i := range positions {
		if !c.Request.HasSubset || c.allowed[i] {
			c.endpoints, c.places = append(c.endpoints, c.Pool.Endpoints[i]), append(c.places, i)
		}
	}
}
