package cycle

import (
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/explanation"
)

// Avoided is an endpoint that was left out of the candidates, and why.
type Avoided struct {
	Endpoint *endpoint.Endpoint
	Reason   string        // see explained.Avoided
	More     time.Duration // for how much longer, where that is known
}

// leave leaves out the candidates that are not kept, and notes why.
func (c *Cycle) leave(why string) {
	left := c.endpoints[:0]
	for i, ep := range c.endpoints {
		if c.keep[i] {
			left = append(left, ep)
			continue
		}
		a := Avoided{Endpoint: ep, Reason: why}
		switch why {
		case explanation.AvoidedFull:
			a.More = ep.Tracker().FullFor(c.Now)
		case explanation.AvoidedModelFails:
			a.More = ep.Tracker().AvoidsFor(ModelKey(c.Request), c.Now)
		}
		c.avoided = append(c.avoided, a)
	}
	c.endpoints = left
}
