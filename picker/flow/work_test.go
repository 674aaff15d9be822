package flow

import (
	"math"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// Fairness counts actual engine time, not predictions: a flow whose requests take a quarter of the
// time gets four times as many.
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
		t.Errorf("short requests per long request: %.2f, want 4", ratio)
	}
}

// A flow known for short responses is not overtaken like one with long ones.
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
	if got := c.predictedWork(f, 3); math.Abs(got-.3) > .01 {
		t.Errorf("predicted %.2f s for requests that took 0.3 s fifty times", got)
	}
	if got := c.predictedWork(c.flow(c.band(0), "new"), 3); math.Abs(got-.3) > .01 {
		t.Errorf("predicted %.2f s for a new flow after all requests took 0.3 s", got)
	}
}
