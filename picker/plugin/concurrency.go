package plugin

import (
	"github.com/grapevine-epp/grapevine/picker"
)

type concurrencyParams struct {
	ConcurrencyMode     string  `json:"concurrencyMode"`
	MaxConcurrency      int64   `json:"maxConcurrency"`
	MaxTokenConcurrency int64   `json:"maxTokenConcurrency"`
	Headroom            float64 `json:"headroom"`
	CapacityPerEndpoint int64   `json:"capacityPerEndpoint,omitempty"`
	InFlightProducer    string  `json:"inFlightLoadProducerName,omitempty"`
}

// concurrency judges endpoints by the book of all replicas: what is in flight
// over what may be. With both limits the one that is nearer counts.
type concurrency struct {
	requests, tokens float64 // limits; 0: none
	headroom         float64
}

// Modes of concurrency-detector.
const (
	byRequests = "requests"
	byTokens   = "tokens"
	byBoth     = "hybrid"
)

func newConcurrency(p concurrencyParams) (Plugin, error) {
	u := concurrency{requests: float64(p.MaxConcurrency), tokens: float64(p.MaxTokenConcurrency), headroom: p.Headroom}
	if p.CapacityPerEndpoint > 0 {
		u.requests = float64(p.CapacityPerEndpoint)
	}
	switch p.ConcurrencyMode {
	case byRequests:
		u.tokens = 0
	case byTokens:
		u.requests = 0
	}
	return Plugin{Filter: u, Detector: u.saturation}, Faults(
		Require(p.ConcurrencyMode == byRequests || p.ConcurrencyMode == byTokens || p.ConcurrencyMode == byBoth, "concurrencyMode", "must be requests, tokens or hybrid"),
		Require(p.MaxConcurrency > 0, "maxConcurrency", "must be positive"),
		Require(p.MaxTokenConcurrency > 0, "maxTokenConcurrency", "must be positive"),
		Require(p.Headroom >= 0, "headroom", "must not be negative"))
}

// load is what is in flight over what may be.
func (u concurrency) load(v *picker.View) float64 {
	full := 0.0
	if u.requests > 0 {
		full = float64(v.Load.Requests) / u.requests
	}
	if u.tokens > 0 {
		full = max(full, float64(v.Load.Tokens)/u.tokens)
	}
	return full
}

func (u concurrency) saturation(c *picker.Cycle) float64 {
	sum, n := 0.0, c.Len()
	for k := range n {
		sum += u.load(c.At(k))
	}
	return sum / float64(max(n, 1))
}

// Filter implements picker.Filter.
func (u concurrency) Filter(c *picker.Cycle, keep []bool) {
	for k := range keep {
		keep[k] = u.load(c.At(k)) <= 1+u.headroom
	}
	picker.KeepAllIfNone(keep)
}
