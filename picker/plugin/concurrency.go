package plugin

import (
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// Modes of concurrency.
const (
	modeRequests = "requests"
	modeTokens   = "tokens"
	modeHybrid   = "hybrid"
)

// mostPlaces limits an endpoint's capacity, so that a pool's sum is finite.
const mostPlaces = int64(1e12)

type concurrencyParams struct {
	ConcurrencyMode     string  `json:"concurrencyMode"`
	MaxConcurrency      int64   `json:"maxConcurrency"`
	MaxTokenConcurrency int64   `json:"maxTokenConcurrency"`
	Headroom            float64 `json:"headroom"`
	CapacityPerEndpoint int64   `json:"capacityPerEndpoint,omitempty"`
	InFlightProducer    string  `json:"inFlightLoadProducerName,omitempty"`
}

// concurrency rates endpoints by the load tracker of all replicas: load in flight over the limit.
// Tokens are those still to be computed before first tokens. A limit of 0 is ignored.
type concurrency struct{ requests, tokens, headroom float64 }

func newConcurrency(p concurrencyParams) (Plugin, error) {
	if p.CapacityPerEndpoint > 0 {
		p.MaxConcurrency = p.CapacityPerEndpoint
	}
	u := concurrency{float64(p.MaxConcurrency), float64(p.MaxTokenConcurrency), p.Headroom}
	sizing := &rules.Sizing{Unit: rules.Larger, Requests: min(p.MaxConcurrency, mostPlaces), Tokens: min(p.MaxTokenConcurrency, mostPlaces)}
	switch p.ConcurrencyMode {
	case modeRequests:
		u.tokens, sizing.Unit = 0, rules.Requests
	case modeTokens:
		u.requests, sizing.Unit = 0, rules.Tokens
	}
	return Plugin{Filter: u, Detector: u.saturation, Sizing: sizing}, Faults(
		Require(p.ConcurrencyMode == modeRequests || p.ConcurrencyMode == modeTokens || p.ConcurrencyMode == modeHybrid,
			"concurrencyMode", "must be requests, tokens or hybrid"),
		Require(p.MaxConcurrency > 0, "maxConcurrency", "must be positive"),
		Require(p.MaxTokenConcurrency > 0, "maxTokenConcurrency", "must be positive"),
		Require(p.Headroom >= 0, "headroom", "must not be negative"))
}

// use returns the larger fraction of the two limits in use.
func (u concurrency) use(v *cycle.View) float64 {
	share := 0.0
	if u.requests > 0 {
		share = float64(v.Load.Requests) / u.requests
	}
	if u.tokens > 0 {
		share = max(share, float64(v.Load.Prefill)/u.tokens)
	}
	return share
}

func (u concurrency) saturation(c *cycle.Cycle) float64 {
	sum, n := 0.0, c.Len()
	for k := range n {
		sum += u.use(c.At(k))
	}
	return sum / float64(max(n, 1))
}

// Filter implements cycle.Filter. It keeps endpoints below the limits. If there are none, the
// request is refused.
func (u concurrency) Filter(c *cycle.Cycle, keep []bool) {
	for k := range keep {
		l := &c.At(k).Load
		keep[k] = under(l.Requests, u.requests, u.headroom) && under(l.Prefill, u.tokens, u.headroom)
	}
}

// under reports whether n is below a limit, in whole numbers; limit 0 means none.
func under(n int64, limit, headroom float64) bool {
	return limit == 0 || n < int64(limit*(1+headroom))
}
