package picker

import (
	"slices"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// fillAvoided records the endpoints that were excluded, and the restrictions that explain why the
// rest were never considered.
func (rec *record) fillAvoided(c *cycle.Cycle) {
	rec.avoided = append(rec.avoided[:0], c.Avoided()[:min(len(c.Avoided()), maxRecorded)]...)
	rec.pinned, rec.allowed = c.Pinned(), append(rec.allowed[:0], c.Allowed()...)
}

// explainAvoided lists the endpoints that were not candidates, in pool order.
func (rec *record) explainAvoided() (out []explanation.Avoided) {
	if rec.pool == nil {
		return nil
	}
	for i, ep := range rec.pool.Endpoints {
		if slices.ContainsFunc(rec.rows, func(row recordRow) bool { return row.view.Endpoint == ep }) {
			continue
		}
		a := explanation.Avoided{Endpoint: ep.Address, Reason: rec.exclusionReason(i, ep)}
		if k := slices.IndexFunc(rec.avoided, func(a cycle.Avoided) bool { return a.Endpoint == ep }); k >= 0 {
			a.Reason, a.More = rec.avoided[k].Reason, rec.avoided[k].More.Seconds()
		}
		if a.Reason != "" && len(out) < maxRecorded {
			out = append(out, a)
		}
	}
	return out
}

// exclusionReason returns why an endpoint that is neither a candidate nor an excluded one was not considered.
// It returns "" if the record does not show it.
func (rec *record) exclusionReason(i int, ep *endpoint.Endpoint) string {
	switch {
	case rec.total > len(rec.rows): // it may be a candidate that was not recorded
		return ""
	case len(rec.allowed) > i && !rec.allowed[i]:
		return explanation.AvoidedSubset
	case rec.pinned:
		return explanation.AvoidedConversation
	case rec.kind == request.KindOther && ep.Role&endpoint.RoleDecode == 0:
		return explanation.AvoidedRole
	case len(rec.target) > 0:
		return explanation.AvoidedModel
	}
	return ""
}
