package plugins

import (
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

type sloTierParams struct {
	EpsilonExploreNeg float64 `json:"epsilonExploreNeg"`
	LatencyProducer   string  `json:"latencyPredictionInfoProducerName,omitempty"`
}

// sloTier keeps the endpoints that are expected to meet the request's latency targets. With a small
// probability it keeps the others instead, so that they are re-evaluated. It keeps all without a
// target, if all or none meet it, and until latencies are learned.
type sloTier struct{ epsilon float64 }

func newSLOTier(p sloTierParams) (plugin.Plugin, error) {
	return plugin.Plugin{Filter: sloTier{p.EpsilonExploreNeg}, Differs: []string{oneTarget}},
		plugin.Require(p.EpsilonExploreNeg >= 0 && p.EpsilonExploreNeg <= 1, "epsilonExploreNeg", "must be between 0 and 1")
}

// oneTarget describes a difference to pickers that count a time without a target as missed.
const oneTarget = "of a request that names one latency target, the time without a target counts as met; elsewhere as missed"

// headroom returns target minus prediction in seconds, for first token and time per token. A
// missing target counts as 0.
func headroom(c *cycle.Cycle, k int) (ttft, tpot float64) {
	return c.Request.SLOTTFT.Seconds() - expected(c, k).TTFT(), c.Request.SLOTPOT.Seconds() - expectedStep(c, k)
}

// Filter implements cycle.Filter.
func (f sloTier) Filter(c *cycle.Cycle, keep []bool) {
	r := c.Request
	if r.SLOTTFT == 0 && r.SLOTPOT == 0 || !learned(c) {
		return
	}
	met := 0
	for k := range keep {
		ttft, tpot := headroom(c, k)
		keep[k] = (r.SLOTTFT == 0 || ttft >= 0) && (r.SLOTPOT == 0 || tpot >= 0)
		if keep[k] {
			met++
		}
	}
	switch {
	case met == 0 || met == len(keep):
		for k := range keep {
			keep[k] = true
		}
	case c.Float64() < f.epsilon:
		for k := range keep {
			keep[k] = !keep[k]
		}
	}
}

const (
	trustedSamples = 8    // minimum samples behind constants that justify a rejection
	secondLook     = 0.01 // share of rejectable requests that are admitted anyway
)

// MissesTarget reports whether no endpoint is expected to meet the request's latency target.
// First-token times count for all endpoints except encode-only ones, times per token for endpoints
// that decode. Endpoints with few samples count as meeting the target. For one request in a hundred
// it returns false, so that the learned values are updated.
func MissesTarget(c *cycle.Cycle) bool {
	r := c.Request
	if r.SLOTTFT == 0 && r.SLOTPOT == 0 || c.Len() == 0 {
		return false
	}
	late, slow := r.SLOTTFT > 0, r.SLOTPOT > 0
	for k := range c.Len() {
		v := c.At(k)
		ttft, tpot := headroom(c, k)
		if late && v.Role != endpoint.RoleEncode && (ttft >= 0 || v.Cost.PrefillSeen < trustedSamples) {
			late = false
		}
		if slow && v.Role&endpoint.RoleDecode != 0 && (tpot >= 0 || v.Cost.DecodeSeen < trustedSamples) {
			slow = false
		}
	}
	return (late || slow) && c.Float64() >= secondLook
}
