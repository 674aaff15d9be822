package flow

import (
	"fmt"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// Position describes a waiting request, or returns false. It iterates over its flow's waiting
// requests.
func (c *Core) Position(now int64, h rules.Handle) (s rules.QueuePosition, waits bool) {
	c.tick(now)
	i := c.slot(h)
	if i == none || c.slab[i].state != rules.Queued {
		return s, false
	}
	w := &c.slab[i]
	f := w.flow
	s = rules.QueuePosition{
		Tenant:   rules.Tenant{Flow: f.id, Waiting: f.queued(), InFlight: f.held(), Share: f.fair},
		Priority: f.band.Priority, WaitedS: float64(now-w.arrival) / 1e9,
	}
	s.ExpectedS, _ = c.Expected(h)
	for _, other := range f.heap.items {
		if f.heap.less(c.slab, other, i) {
			s.Ahead++
		}
	}
	s.Reason = c.reason(w, s.Ahead)
	return s, true
}

// reason returns why a request with that many of its flow ahead is waiting.
func (c *Core) reason(w *waiter, ahead int) string {
	b := w.flow.band
	for _, higher := range c.bands {
		if higher == b {
			break
		}
		if higher.waiting > 0 {
			return fmt.Sprintf("%d requests of priority %d are waiting at this replica", higher.waiting, higher.Priority)
		}
	}
	places := c.wanted(w)
	switch {
	case c.capacity.Endpoints == 0:
		return "no endpoint is ready"
	case ahead > 0:
		return fmt.Sprintf("%d requests of its flow are ahead", ahead)
	case float64(c.inFlight()+places) > float64(c.capacity.Permits)*b.ceiling+slack:
		return fmt.Sprintf("%d of %d permits are held, and its priority may use %.0f%% of them", c.inFlight(), c.capacity.Permits, 100*b.ceiling)
	case c.lacksRoom(places, b.ceiling):
		return "no endpoint has room for its prompt"
	case !c.fits(b, w.flow, places, b.ceiling):
		return "this replica already holds its part of the permits"
	default:
		return "another flow is next"
	}
}
