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

// sloTier keeps the endpoints that are expected to meet the request's latency
// targets. When there are both kinds it keeps the others with a small
// probability, so that they are looked at again. Without a target, and when
// nobody or everybody meets it, and until something was learned, everybody stays.
type sloTier struct{ epsilon float64 }

func newSLOTier(p sloTierParams) (plugin.Plugin, error) {
	return plugin.Plugin{Filter: sloTier{p.EpsilonExploreNeg}, Differs: []string{oneTarget}},
		plugin.Require(p.EpsilonExploreNeg >= 0 && p.EpsilonExploreNeg <= 1, "epsilonExploreNeg", "must be between 0 and 1")
}

// oneTarget is where headroom is judged otherwise than by pickers for which a time
// without a target is missed.
const oneTarget = "of a request that names one latency target, the time without a target counts as met; elsewhere as missed"

// headroom returns target minus expectation, in seconds, for first token and
// time per token. Without a target the target is 0.
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
	trustedSamples = 8    // behind constants by which a request may be refused
	secondLook     = 0.01 // of the requests that would be refused
)

// MissesTarget reports whether the request has a latency target that no
// endpoint is expected to meet: the first token anywhere but where only images
// are encoded, the time per token where answers are made. Endpoints that are
// little known count as meeting it, and so do all for one request in a hundred,
// so that what was learned is looked at again.
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
