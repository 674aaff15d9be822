package picker

import (
	"slices"

	"github.com/grapevine-epp/grapevine/picker/health"
)

// ExplainedHealth is an endpoint that was not healthy at the decision.
type ExplainedHealth struct {
	Endpoint string  `json:"endpoint"`
	State    string  `json:"state"`
	Since    float64 `json:"since_s"` // before the decision
	Evidence string  `json:"evidence"`
	BackBy   string  `json:"back_by,omitempty"`
	// Used says that it could be chosen nevertheless: by lot, while it returns, or
	// because most of the pool looks sick.
	Used bool `json:"used"`
}

// explainHealth lists the endpoints that were not healthy at the decision.
func (rec *record) explainHealth() (out []ExplainedHealth) {
	if rec.pool == nil || rec.health == nil {
		return nil
	}
	for _, ep := range rec.pool.Endpoints {
		v := rec.health.View(int(ep.ID))
		if v.State == health.Healthy {
			continue
		}
		used := slices.ContainsFunc(rec.rows, func(row recordRow) bool { return row.view.Endpoint == ep })
		out = append(out, ExplainedHealth{ep.Address, v.State.String(), rec.at.Sub(v.Since).Seconds(), v.Evidence(), v.Remedy(), used})
	}
	return out
}

// against names what the end of a request says against its endpoint.
func against(c health.Cause) string {
	if c == health.None || c >= health.NumCauses {
		return ""
	}
	return c.String()
}
