package flow

import (
	"testing"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// Replicas that hold nothing send nothing. A replica that gets all requests still takes the whole
// pool.
func TestIdleReplicasLeaveThePool(t *testing.T) {
	c := New(rules.Options{})
	c.SetCapacity(1, rules.Capacity{Permits: 90, Endpoints: 9})
	now := int64(2)
	for _, peer := range []string{"b", "c"} {
		c.ReceiveShares(now, peer, []rules.Gauge{{InFlight: 1}})
		c.ReceiveShares(now+1, peer, nil)
	}
	c.ObserveRunning(now+2, 0)
	now += 10 * int64(1e9)
	c.Advance(now)
	let := 0
	for range 200 {
		now++
		if _, out := c.Offer(now, rules.Request{}); out == rules.Dispatched {
			let++
		}
	}
	for range 3 {
		now += 50 * ms
		c.Advance(now)
		let += len(dispatched(c))
	}
	if let != 90 {
		t.Errorf("%d of 90 permits are held while %d requests wait", let, c.waiting)
	}
}
