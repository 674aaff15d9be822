package plugins

import (
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// transferParams say what moving a prompt's blocks costs. The defaults are those
// of an 8B model with grouped attention in 16 bits, and of usual networks.
type transferParams struct {
	KVBytesPerToken int `json:"kvBytesPerToken"`
	// GigabytesPerSecond between endpoints that share at most the level.
	GigabytesPerSecond struct {
		Host      float64 `json:"host"`
		Rack      float64 `json:"rack"`
		Zone      float64 `json:"zone"`
		Region    float64 `json:"region"`
		Elsewhere float64 `json:"elsewhere"`
	} `json:"gigabytesPerSecond"`
}

func transferDefaults() transferParams {
	p := transferParams{KVBytesPerToken: 131072}
	g := &p.GigabytesPerSecond
	g.Host, g.Rack, g.Zone, g.Region, g.Elsewhere = 100, 25, 10, 1, .2
	return p
}

// transfer scores the negative time, in seconds, that the prompt's blocks take
// to the peer that was chosen before: beside the predicted-ttft-scorer with
// weight 1, the pair is chosen by the sum. Without a peer everybody gets 0; an
// endpoint that says nothing of its place counts as in the peer's zone.
type transfer struct {
	bytes float64
	speed [len(topologyLevels) + 1]float64 // bytes per second by level, tightest first; last: none shared
}

func newTransfer(p transferParams) (plugin.Plugin, error) {
	s, err := p.transfer()
	return plugin.Plugin{Scorer: s}, err
}

func (p transferParams) transfer() (transfer, error) {
	g := p.GigabytesPerSecond
	s := transfer{bytes: float64(p.KVBytesPerToken)}
	names := [...]string{"host", "rack", "zone", "region", "elsewhere"}
	errs := []error{plugin.Require(p.KVBytesPerToken > 0, "kvBytesPerToken", "must be positive")}
	for i, speed := range [...]float64{g.Host, g.Rack, g.Zone, g.Region, g.Elsewhere} {
		errs = append(errs, plugin.Require(speed > 0, "gigabytesPerSecond."+names[i], "must be positive"))
		s.speed[i] = speed * 1e9
	}
	return s, plugin.Faults(errs...)
}

// seconds returns the time that the request's blocks take from one endpoint to
// another.
func (s *transfer) seconds(c *picker.Cycle, from, to *endpoint.Endpoint) float64 {
	if from == to {
		return 0
	}
	return s.bytes * float64(max(c.Request.InputTokens, 1)) / s.speed[sharedLevel(from, to)]
}

// Score implements picker.Scorer.
func (s transfer) Score(c *picker.Cycle, scores []float64) {
	if c.Peer == nil {
		clear(scores)
		return
	}
	for k := range scores {
		scores[k] = -s.seconds(c, c.At(k).Endpoint, c.Peer)
	}
}

// predictedDecider splits a request when its first token is expected earlier
// with the prompt computed at the best prefill endpoint and transferred than at
// the endpoint that answers, where the prefill also stalls what decodes there.
type predictedDecider struct {
	transfer
	stall float64
}

type predictedDeciderParams struct {
	transferParams
	StallWeight float64 `json:"stallWeight"` // stall of each request that decodes at the endpoint that answers
}

func newPredictedDecider(p predictedDeciderParams) (plugin.Plugin, error) {
	t, err := p.transfer()
	d := predictedDecider{t, p.StallWeight}
	return plugin.Plugin{Decider: d.decide}, plugin.Faults(err, plugin.Require(p.StallWeight >= 0, "stallWeight", "must not be negative"))
}

func (d *predictedDecider) decide(c *picker.Cycle, serving int32) bool {
	v, w := c.All(serving), c.WorkAt(serving)
	own := v.Cost.Prefill(w)
	local := v.Cost.Wait(&v.Load, c.Now) + own*(1+d.stall*float64(max(v.Load.Requests-v.Load.Waiting, 0))) + v.Cost.Base
	for i := range int32(c.Candidates()) {
		p := c.All(i)
		if i == serving || p.Role&endpoint.RolePrefill == 0 {
			continue
		}
		remote := p.Cost.Wait(&p.Load, c.Now) + p.Cost.Prefill(c.WorkAt(i)) + p.Cost.Base + d.seconds(c, p.Endpoint, v.Endpoint)
		if remote < local {
			return true
		}
	}
	return false
}

// zoneLevel is the position of zone among the levels.
const zoneLevel = 2

// sharedLevel returns the tightest level that two endpoints share, as a position
// among the levels, or their number when they share none.
func sharedLevel(a, b *endpoint.Endpoint) int {
	said := false
	for i := range topologyLevels {
		x, hasX := a.Label(topologyLevels[i].label)
		y, hasY := b.Label(topologyLevels[i].label)
		if hasX && hasY && x == y && x != "" {
			return i
		}
		said = said || hasX && hasY
	}
	if !said {
		return zoneLevel
	}
	return len(topologyLevels)
}
