package flow

import (
	"math"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// Extremely long TTLs do not overflow into expired ones.
func TestEndlessWaits(t *testing.T) {
	now := int64(time.Hour)
	for _, o := range []rules.Options{{TTL: math.MaxInt64, EmptyTTL: math.MaxInt64}, {TTL: math.MaxInt64}, {EmptyTTL: math.MaxInt64}, {}} {
		for _, ordering := range []rules.Ordering{rules.Arrival, rules.Deadline, rules.LatencyTarget, rules.ShortestFirst} {
			o.Default.Ordering = ordering
			c := New(o)
			for range 2 {
				offer(t, c, now, rules.Request{TTL: math.MaxInt64, Target: math.MaxInt64, Work: math.Inf(1)}, rules.Queued)
				offer(t, c, now, rules.Request{Target: -1, Work: math.NaN()}, rules.Queued)
				c.SetCapacity(now, rules.Capacity{Endpoints: 1})
				c.Advance(now + int64(24*time.Hour))
				if len(c.Events(nil)) > 0 {
					t.Fatalf("%+v: a request without a deadline expired", o)
				}
			}
			c.SetCapacity(now, rules.Capacity{Permits: 4, Endpoints: 1})
			if n := len(dispatched(c)); n != 4 {
				t.Errorf("%+v: %d of 4 dispatched", o, n)
			}
		}
	}
}

// Load that bypasses the group reduces its room to no less than one permit.
func TestForeignLoad(t *testing.T) {
	c := New(tenants)
	c.SetCapacity(1, rules.Capacity{Permits: 8, Endpoints: 2})
	for now := int64(2); now < 5; now++ {
		c.ObserveRunning(now, now, 1000)
	}
	first := offer(t, c, 5, rules.Request{}, rules.Dispatched)
	offer(t, c, 6, rules.Request{}, rules.Queued)
	c.ObserveRunning(7, 7, 1001)
	if n := len(dispatched(c)); n != 0 {
		t.Errorf("%d more dispatched although engines are full", n)
	}
	c.Release(8, first, -1)
	if n := len(dispatched(c)); n != 1 {
		t.Errorf("%d dispatched when the group holds nothing", n)
	}
	c.ObserveRunning(9, 9, 1)
	offer(t, c, 10, rules.Request{}, rules.Dispatched)
}

// Requests that need the whole pool are served while others keep it full, with every policy, for
// one replica and several.
func TestWholePool(t *testing.T) {
	s := int64(time.Second)
	for _, fairness := range []rules.Fairness{rules.Strict, rules.Places, rules.Work, rules.LeastService} {
		for replicas, share := range map[int][]float64{1: {1}, 3: {.2, .4, .4}} {
			o := tenants
			o.Default.Fairness = fairness
			w := newWorld(2, replicas, 40, 1, o)
			w.streamOf(rules.Request{Flow: "small", Work: .1}, 44, share)
			w.until(5 * s)
			for range 5 {
				w.offer(w.replicas[0], rules.Request{Flow: "large", Permits: 50, Work: 1})
				w.until(w.now + 20*s)
			}
			if f := w.flow("large"); f.served != 5 {
				t.Errorf("policy %d, %d replicas: %d of 5 whole-pool requests served", fairness, replicas, f.served)
			}
			w.check(t)
		}
	}
}
