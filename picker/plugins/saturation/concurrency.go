package saturation

import (
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

type concurrencyParams struct {
	ConcurrencyMode     string  `json:"concurrencyMode"`
	MaxConcurrency      int64   `json:"maxConcurrency"`
	MaxTokenConcurrency int64   `json:"maxTokenConcurrency"`
	Headroom            float64 `json:"headroom"`
	CapacityPerEndpoint int64   `json:"capacityPerEndpoint,omitempty"`
}

// concurrency judges endpoints by the book of all replicas: what is in flight
// over what may be.
type concurrency struct {
	tokens          bool
	limit, headroom float64
}

func newConcurrency(p concurrencyParams) (plugin.Plugin, error) {
	u := concurrency{p.ConcurrencyMode == "tokens", float64(p.MaxConcurrency), p.Headroom}
	if p.CapacityPerEndpoint > 0 {
		u.limit = float64(p.CapacityPerEndpoint)
	}
	if u.tokens {
		u.limit = float64(p.MaxTokenConcurrency)
	}
	return plugin.Plugin{Filter: u, Detector: u.saturation}, plugin.Faults(
		plugin.Require(p.ConcurrencyMode == "requests" || u.tokens, "concurrencyMode", "must be requests or tokens"),
		plugin.Require(p.MaxConcurrency > 0, "maxConcurrency", "must be positive"),
		plugin.Require(p.MaxTokenConcurrency > 0, "maxTokenConcurrency", "must be positive"),
		plugin.Require(p.Headroom >= 0, "headroom", "must not be negative"))
}

func (u concurrency) load(v *picker.View) float64 {
	if u.tokens {
		return float64(v.Load.Tokens)
	}
	return float64(v.Load.Requests)
}

func (u concurrency) saturation(c *picker.Cycle) float64 {
	sum, n := 0.0, c.Len()
	for k := range n {
		sum += u.load(c.At(k))
	}
	return sum / (u.limit * float64(max(n, 1)))
}

// Filter implements picker.Filter.
func (u concurrency) Filter(c *picker.Cycle, keep []bool) {
	for k := range keep {
		keep[k] = u.load(c.At(k)) <= u.limit*(1+u.headroom)
	}
	picker.KeepAllIfNone(keep)
}
