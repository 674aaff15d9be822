package cycle

import (
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/explanation"
)

// Avoided is an endpoint that was excluded from the candidates.
type Avoided struct {
	Endpoint *endpoint.Endpoint
	Reason   string        // see explanation.Avoided
	More     time.Duration // remaining time, if known
}

// leave removes the candidates that are not kept, and records the reason.
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
		case explanation.AvoidedModelFails, explanation.AvoidedClientFails, explanation.AvoidedKindFails:
			for trait, key := range TraitsOf(c.Request) {
				if traitWords[trait] == why {
					a.More = max(a.More, ep.Tracker().AvoidsFor(key, c.Now))
				}
			}
		}
		c.avoided = append(c.avoided, a)
	}
	c.endpoints = left
}
