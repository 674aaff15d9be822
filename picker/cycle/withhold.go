package cycle

import (
	"cmp"
	"slices"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// withhold leaves out the candidates that are sick, whose queue is full, or that fail
// the request's model. One that is to get a trickle of the requests is left out by lot.
func (c *Cycle) withhold() {
	now, restricted := c.Now.UnixNano(), false
	for _, ep := range c.endpoints {
		restricted = restricted || ep.Share() < health.Full || ep.Tracker().FullAt(now) || ep.Tracker().AvoidedCount() > 0
	}
	if !restricted {
		return
	}
	c.keep = resize(c.keep, len(c.endpoints))
	for i, ep := range c.endpoints {
		share := ep.Share()
		c.keep[i] = share == health.Full || share > 0 && uint32(c.IntN(health.Full)) < share
		if share > 0 && ep.Role&endpoint.RoleDecode != 0 && (!c.keep[i] || ep.Tracker().FullAt(now)) {
			c.reserve = append(c.reserve, ep)
		}
	}
	if !c.serves() { // the lot fell on nobody: whoever is not out
		for i, ep := range c.endpoints {
			c.keep[i] = !ep.Down()
		}
		if !c.serves() {
			return
		}
	}
	c.leave(explanation.AvoidedHealth)
	c.spare(explanation.AvoidedFull, func(ep *endpoint.Endpoint) bool { return ep.Tracker().FullAt(now) })
	c.shun(ModelKey(c.Request))
}

// shun leaves out the candidates that fail a model, unless most of them do: then it is none of
// them alone, and the others would get all its requests.
func (c *Cycle) shun(model uint64) {
	fail := 0
	for _, ep := range c.endpoints {
		if ep.Tracker().Avoids(model, c.Now) {
			fail++
		}
	}
	if fail > 0 && 2*fail <= len(c.endpoints) {
		c.spare(explanation.AvoidedModelFails, func(ep *endpoint.Endpoint) bool { return ep.Tracker().Avoids(model, c.Now) })
	}
}

// spare leaves out the bad candidates, unless nobody else does what they do.
func (c *Cycle) spare(why string, bad func(*endpoint.Endpoint) bool) {
	var served endpoint.Role
	for i, ep := range c.endpoints {
		if c.keep[i] = !bad(ep); c.keep[i] {
			served |= ep.Role
		}
	}
	for i, ep := range c.endpoints {
		c.keep[i] = c.keep[i] || ep.Role&^served != 0
	}
	c.leave(why)
}

// appendReserve appends the addresses of endpoints that were left out, but not for being
// out, where an only destination would have nobody behind it. They are asked when that one
// fails. A profile that filters might have left them out too, so that it gets none.
func (c *Cycle) appendReserve(list []string) []string {
	const enough = 2
	if len(c.reserve) == 0 || len(list) != 1 || c.ranked == 0 || len(c.rankings[0].Profile.Filters) > 0 || c.First().IsRemote() {
		return list
	}
	for _, ep := range c.reserve {
		if len(list) <= enough && ep.Address != list[0] && !ep.Down() {
			list = append(list, ep.Address)
		}
	}
	return list
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

// seat leaves out the candidates that have as many requests as they are to have, while
// others of their role have room: what waits in an engine's own queue waits in the order
// in which it came, and cannot be moved.
func (c *Cycle) seat() {
	full := false
	for i := range c.views {
		full = full || c.views[i].full()
	}
	if !full || c.pinned {
		return
	}
	c.keep = resize(c.keep, len(c.views))
	for i := range c.views {
		v := &c.views[i]
		c.keep[i] = !v.full()
		for k := 0; k < len(c.views) && !c.keep[i]; k++ {
			if c.views[k].Role == v.Role && !c.views[k].full() {
				break
			} else if k == len(c.views)-1 {
				c.keep[i] = true // nobody of the role has room
			}
		}
	}
	c.keepViews(explanation.AvoidedPlaces)
}

// isolate leaves, of each role, the candidates alone where the least is lost if the engine
// dies: answers that have begun cannot be tried elsewhere, others can.
func (c *Cycle) isolate() {
	less := func(a, b *endpoint.Load) bool {
		begunA, begunB := a.Requests-a.Waiting, b.Requests-b.Waiting
		return begunA < begunB || begunA == begunB && a.Requests < b.Requests
	}
	c.keep = resize(c.keep, len(c.views))
	for i := range c.views {
		v := &c.views[i]
		c.keep[i] = !slices.ContainsFunc(c.views, func(o View) bool { return o.Role == v.Role && less(&o.Load, &v.Load) })
	}
	c.keepViews(explanation.AvoidedPrompt)
}

// keepViews leaves out the candidates, and what was seen of them, that are not kept.
func (c *Cycle) keepViews(why string) {
	c.leave(why)
	n := 0
	for i := range c.keep {
		if c.keep[i] {
			c.views[n] = c.views[i]
			n++
		}
	}
	c.views = c.views[:n]
}

// full reports whether the endpoint has as many requests as it is to have.
func (v *View) full() bool {
	places := v.Permits()
	return places > 0 && v.Load.Requests >= places
}

// Healthy reports whether nothing speaks against the endpoint at a place of the plan.
func (c *Cycle) Healthy(place int) bool {
	ep := c.endpoints[c.plan.Order[place]]
	return !ep.IsRemote() && ep.Share() == health.Full && !ep.Down() && !ep.Tracker().FullAt(c.Now.UnixNano())
}

// ModelKey names the model that a request is for, 0 when it names none.
func ModelKey(r *request.Request) uint64 { return endpoint.ModelKey(cmp.Or(r.Target, r.Model)) }
