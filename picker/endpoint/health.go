package endpoint

import (
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/grapevine-epp/grapevine/picker/health"
)

// healthCell holds an endpoint's health share and watches its requests.
type healthCell struct {
	withheld atomic.Uint32 // number of health.Full decisions that exclude it
	tracker  health.Tracker
}

// Share returns in how many of health.Full decisions the endpoint may be a candidate.
func (c *life) Share() uint32 {
	return health.Full - min(c.health.withheld.Load(), health.Full)
}

// Down reports whether the endpoint is out. It is used only if no other endpoint is left.
func (c *life) Down() bool { return c.Share() == 0 }

// SetDown marks the endpoint as out or healthy. With health monitoring, use Pool.SetHealth instead.
func (c *life) SetDown(down bool) {
	if down {
		c.setShare(0)
	} else {
		c.setShare(health.Full)
	}
}

func (c *life) setShare(share uint32) {
	c.health.withheld.Store(health.Full - min(share, health.Full))
	if share < health.Full {
		c.mark.restrict()
	}
}

// ModelKey returns the hash of a model name for the Tracker, 0 for "".
func ModelKey(name string) uint64 {
	if name == "" {
		return 0
	}
	return xxhash.Sum64String(name)
}

// AvoidedModels appends the endpoint's models whose requests are sent elsewhere.
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

// AvoidedOthers returns how many clients and kinds of request are sent elsewhere, as they fail here.
func (e *Endpoint) AvoidedOthers(now time.Time) int {
	return max(e.Tracker().AvoidedCount()-len(e.AvoidedModels(nil, now)), 0)
}

// Tracker returns the tracker of the endpoint's in-flight requests.
func (c *life) Tracker() *health.Tracker { return &c.health.tracker }

// Health returns the pool's last health snapshot, or nil without a monitor.
func (p *Pool) Health() *health.Snapshot { return p.health.Load() }

// SetHealth publishes a health snapshot to decisions.
func (p *Pool) SetHealth(h *health.Snapshot) {
	p.health.Store(h)
	for _, ep := range p.Snapshot().Endpoints {
		ep.setShare(h.View(int(ep.ID)).Share)
	}
}

// SetPermits sets the maximum number of requests at the engine, including its own queue; 0: no
// limit.
func (c *counters) SetPermits(n int64) {
	if c.places.Swap(n) != n {
		c.mark.changed()
	}
}

// Permits returns the value of the last SetPermits.
func (c *counters) Permits() int64 { return c.places.Load() }
