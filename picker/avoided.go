package picker

import (
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/explained"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// avoided is an endpoint that was left out of the candidates, and why.
type avoided struct {
	ep   *endpoint.Endpoint
	why  string        // see explained.Avoided
	more time.Duration // for how much longer, where that is known
}

// leave leaves out the candidates that are not kept, and notes why.
func (c *Cycle) leave(why string) {
	left := c.endpoints[:0]
	for i, ep := range c.endpoints {
		if c.keep[i] {
			left = append(left, ep)
			continue
		}
		a := avoided{ep: ep, why: why}
		switch why {
		case explained.AvoidedFull:
			a.more = ep.Tracker().FullFor(c.Now)
		case explained.AvoidedModelFails:
			a.more = ep.Tracker().ShunsFor(modelKey(c.Request), c.Now)
		}
		c.avoided = append(c.avoided, a)
	}
	c.endpoints = left
}

// fillAvoided keeps who was left out, and what says why the others were never looked at.
func (rec *record) fillAvoided(c *Cycle) {
	rec.avoided = append(rec.avoided[:0], c.avoided[:min(len(c.avoided), maxRecorded)]...)
	rec.pinned, rec.allowed = c.pinned, rec.allowed[:0]
	if c.Request.HasSubset {
		rec.allowed = append(rec.allowed, c.allowed...)
	}
}

// explainAvoided lists the endpoints that were no candidates, in the order of the pool.
func (rec *record) explainAvoided() (out []explained.Avoided) {
	if rec.pool == nil {
		return nil
	}
	for i, ep := range rec.pool.Endpoints {
		if slices.ContainsFunc(rec.rows, func(row recordRow) bool { return row.view.Endpoint == ep }) {
			continue
		}
		a := explained.Avoided{Endpoint: ep.Address, Why: rec.never(i, ep)}
		if k := slices.IndexFunc(rec.avoided, func(a avoided) bool { return a.ep == ep }); k >= 0 {
			a.Why, a.More = rec.avoided[k].why, rec.avoided[k].more.Seconds()
		}
		if a.Why != "" && len(out) < maxRecorded {
			out = append(out, a)
		}
	}
	return out
}

// never says why an endpoint that is neither among the candidates nor among those that were
// left out of them was never one; "" where the record does not tell.
func (rec *record) never(i int, ep *endpoint.Endpoint) string {
	switch {
	case rec.total > len(rec.rows): // it may be one of those that were not kept
		return ""
	case len(rec.allowed) > i && !rec.allowed[i]:
		return explained.AvoidedSubset
	case rec.pinned:
		return explained.AvoidedConversation
	case rec.kind == request.KindOther && ep.Role&endpoint.RoleDecode == 0:
		return explained.AvoidedRole
	case len(rec.target) > 0:
		return explained.AvoidedModel
	}
	return ""
}
