package plugins

import (
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// TransferParams are the assumed costs of KV transfers before measurements.
type TransferParams struct {
	KVBytesPerToken    int     `json:"kvBytesPerToken"`
	TransferSeconds    float64 `json:"transferSeconds"` // fixed part per transfer
	GigabytesPerSecond struct {
		Host      float64 `json:"host"`
		Rack      float64 `json:"rack"`
		Zone      float64 `json:"zone"`
		Region    float64 `json:"region"`
		Elsewhere float64 `json:"elsewhere"`
	} `json:"gigabytesPerSecond"` // by the closest level that two endpoints share
}

// TransferDefaults returns the parameters of endpoint.DefaultTransfer.
func TransferDefaults() TransferParams {
	d := &endpoint.DefaultTransfer
	p := TransferParams{KVBytesPerToken: int(d.BytesPerToken), TransferSeconds: d.Fixed}
	for level, speed := range p.speeds() {
		*speed = d.Speed[level] / 1e9
	}
	return p
}

// speeds returns pointers to the speeds by level.
func (p *TransferParams) speeds() [endpoint.NumLevels]*float64 {
	g := &p.GigabytesPerSecond
	return [...]*float64{&g.Host, &g.Rack, &g.Zone, &g.Region, &g.Elsewhere}
}

// Model returns the described model, and an error for invalid parameters.
func (p TransferParams) Model() (endpoint.TransferModel, error) {
	m := endpoint.TransferModel{Fixed: p.TransferSeconds, BytesPerToken: float64(p.KVBytesPerToken)}
	errs := []error{
		plugin.Require(p.KVBytesPerToken > 0, "kvBytesPerToken", "must be positive"),
		plugin.Require(p.TransferSeconds >= 0, "transferSeconds", "must not be negative"),
	}
	names := [...]string{"host", "rack", "zone", "region", "elsewhere"}
	for level, speed := range p.speeds() {
		errs = append(errs, plugin.Require(*speed > 0, "gigabytesPerSecond."+names[level], "must be positive"))
		m.Speed[level] = *speed * 1e9
	}
	return m, plugin.Faults(errs...)
}

// transfer scores the negative transfer time, in seconds, of the prompt's blocks to the previously
// chosen peer. Combined with predicted-ttft-scorer at weight 1, the sum selects the pair. Without a
// peer all score 0. An endpoint without topology labels counts as in the peer's zone.
type transfer struct{ model endpoint.TransferModel }

func newTransfer(p TransferParams) (plugin.Plugin, error) {
	m, err := p.Model()
	return plugin.Plugin{Scorer: transfer{m}}, err
}

// Score implements cycle.Scorer.
func (s transfer) Score(c *cycle.Cycle, scores []float64) {
	if c.Peer == nil {
		clear(scores)
		return
	}
	for k := range scores {
		scores[k] = -c.Transfers().Seconds(&s.model, c.At(k).Endpoint, c.Peer, max(c.Request.InputTokens, 1))
	}
}
