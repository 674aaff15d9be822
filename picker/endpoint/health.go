package endpoint

import (
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/grapevine-epp/grapevine/picker/health"
)

// healthCell says how far an endpoint is trusted, and watches its requests.
type healthCell struct {
	withheld atomic.Uint32 // of health.Full decisions, those in which it is left out
	tracker  health.Tracker
}

// Share returns in how many of health.Full decisions the endpoint may be a
// candidate.
func (c *life) Share() uint32 {
	return health.Full - min(c.health.withheld.Load(), health.Full)
}

// Down reports whether the endpoint is out. Such endpoints are passed over while
// others are left.
func (c *life) Down() bool { return c.Share() == 0 }

// SetDown puts the endpoint out, or back. Where health is watched, SetHealth of
// its Pool tells instead.
func (c *life) SetDown(down bool) {
	if down {
		c.setShare(0)
	} else {
		c.setShare(health.Full)
	}
}

func (c *life) setShare(share uint32) {
	c.health.withheld.Store(health.Full - min(share, health.Full))
}

// ModelKey names a model to the Tracker, 0 when it has no name.
func ModelKey(name string) uint64 {
	if name == "" {
		return 0
	}
	return xxhash.Sum64String(name)
}

// AvoidedModels appends the models whose requests go elsewhere, as far as the endpoint is known to
// serve them.
func (e *Endpoint) AvoidedModels(list []string, now time.Time) []string {
	if e.Tracker().AvoidedCount() > 0 {
		e.served(func(m Model) {
			if e.Tracker().Avoids(ModelKey(m.Name), now) {
				list = append(list, m.Name)
			}
		})
	}
	return list
}

// Tracker watches the endpoint's requests in flight.
func (c *life) Tracker() *health.Tracker { return &c.health.tracker }

// Health returns what is known of the endpoints' health, nil while nobody tells.
func (p *Pool) Health() *health.Snapshot { return p.health.Load() }

// SetHealth tells decisions from now on how far each endpoint is trusted.
func (p *Pool) SetHealth(h *health.Snapshot) {
	p.health.Store(h)
	for _, ep := range p.Snapshot().Endpoints {
		ep.setShare(h.View(int(ep.ID)).Share)
	}
}

// SetPermits says how many requests the engine is to have at once, its own queue included;
// 0: nobody says.
func (c *counters) SetPermits(n int64) { c.places.Store(n) }

// Permits returns what SetPermits said last.
func (c *counters) Permits() int64 { return c.places.Load() }
