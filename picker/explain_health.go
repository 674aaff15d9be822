package picker

import (
	"slices"

	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/health"
)

// explainHealth lists the endpoints that were not healthy at the time of the decision.
func (rec *record) explainHealth() (out []explanation.Health) {
	if rec.pool == nil || rec.health == nil {
		return nil
	}
	for _, ep := range rec.pool.Endpoints {
		v := rec.health.View(int(ep.ID))
		if v.State == health.Healthy {
			continue
		}
		used := slices.ContainsFunc(rec.rows, func(row recordRow) bool { return row.view.Endpoint == ep })
		out = append(out, explanation.Health{
			Endpoint: ep.Address, State: v.State.String(), Since: rec.at.Sub(v.Since).Seconds(), Evidence: v.Evidence(),
			BackBy: v.Remedy(), Used: used,
		})
	}
	return out
}

// causeName returns the cause that the end of a request counts against its endpoint, or "".
func causeName(c health.Cause) string {
	if c == health.None || c >= health.NumCauses {
		return ""
	}
	return c.String()
}
