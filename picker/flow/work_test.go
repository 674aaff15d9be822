package flow

import (
	"math"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// What flows took of the engines counts, not what sizes foretold: one whose requests take a
// quarter of that gets four times as many of them.
func TestWorkIsLearned(t *testing.T) {
	took := map[string]float64{"short": .25, "long": 1}
	c := New(rules.Options{Default: rules.Band{Fairness: rules.Work}})
	c.SetCapacity(1, rules.Capacity{Permits: 8, Endpoints: 1})
	now := int64(2)
	var running []rules.Handle
	for range 2000 {
		for id := range took {
			if h, out := c.Offer(now, rules.Request{Flow: id, Work: 2}); out == rules.Dispatched {
				running = append(running, h)
			}
		}
	}
	got := map[string]float64{}
	for i := range 1500 {
		now += 10 * ms
		h := running[i%len(running)]
		c.Release(now, h, took[c.slab[c.slot(h)].flow.id])
		for _, next := range dispatched(c) {
			running[i%len(running)] = next
			if i >= 500 {
				got[c.slab[c.slot(next)].flow.id]++
			}
		}
	}
	if ratio := got["short"] / got["long"]; math.Abs(ratio-4) > .2 {
		t.Errorf("short requests are %.2f times the long ones, want 4", ratio)
	}
}

// A flow that is known for short answers is not passed as one of long ones is.
func TestShortestIsLearned(t *testing.T) {
	c := New(rules.Options{Default: rules.Band{Fairness: rules.Places, Ordering: rules.ShortestFirst}})
	c.SetCapacity(1, rules.Capacity{Permits: 1, Endpoints: 1})
	now := int64(2)
	for range 50 {
		now += 10 * ms
		h, _ := c.Offer(now, rules.Request{Flow: "a", Work: 3})
		c.Release(now, h, .3)
	}
	f := c.flow(c.band(0), "a")
	if got := c.foretold(f, 3); math.Abs(got-.3) > .01 {
		t.Errorf("%.2f s are foretold of what took 0.3 s fifty times", got)
	}
	if got := c.foretold(c.flow(c.band(0), "new"), 3); math.Abs(got-.3) > .01 {
		t.Errorf("%.2f s are foretold of a new flow where all took 0.3 s", got)
	}
}
