package flow

import (
	"slices"
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
	c.ObserveRunning(now+2, now+2, 0)
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

// TestIdleFlowsExpire checks that a flow without requests is kept for idleFlow, and not longer.
func TestIdleFlowsExpire(t *testing.T) {
	c := New(rules.Options{Default: rules.Band{Fairness: rules.Places}})
	c.SetCapacity(1, rules.Capacity{Permits: 1, Endpoints: 1})
	const start = int64(1e9)
	if _, out := c.Offer(start, rules.Request{Flow: "holder"}); out != rules.Dispatched {
		t.Fatalf("Offer() = %v, want dispatched", out)
	}
	slot, out := c.Offer(start, rules.Request{Flow: "leaver"})
	if out != rules.Queued {
		t.Fatalf("Offer() = %v, want queued", out)
	}
	c.Cancel(start, slot)
	known := func() bool {
		for key := range c.flows {
			if key.id == "leaver" {
				return true
			}
		}
		return false
	}
	c.Advance(start + int64(idleFlow))
	if !known() {
		t.Error("a flow expired before it was idle for long")
	}
	c.Advance(start + int64(idleFlow) + 1)
	if known() {
		t.Error("a flow did not expire")
	}
}

// TestListOfIdleFlows: flows leave the list of idle flows from any position.
func TestListOfIdleFlows(t *testing.T) {
	for _, removed := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		var l flowList
		var all [3]flow
		for i := range all {
			l.append(&all[i])
		}
		left := []*flow{&all[0], &all[1], &all[2]}
		for _, i := range removed {
			l.remove(&all[i])
			left = slices.DeleteFunc(left, func(f *flow) bool { return f == &all[i] })
			var forward, back []*flow
			for f := l.first; f != nil; f = f.next {
				forward = append(forward, f)
			}
			for f := l.last; f != nil; f = f.prev {
				back = append([]*flow{f}, back...)
			}
			if !slices.Equal(forward, left) || !slices.Equal(back, left) {
				t.Fatalf("order %v, after removal of %d: %d flows forward, %d back, want %d", removed, i, len(forward), len(back), len(left))
			}
		}
	}
}
