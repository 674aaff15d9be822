package flow

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// Names of flows stay short, and different ones different, whatever clients send.
func TestName(t *testing.T) {
	long := strings.Repeat("é", 1<<19)
	names := map[string]bool{}
	for _, id := range []string{"", "gold", strings.Repeat("x", longestName), strings.Repeat("x", longestName+1), strings.Repeat("x", longestName+2), long + "a", long + "b", "x" + long} {
		name := Name(id)
		if len(name) > longestName || len(id) <= longestName && name != id || !utf8.ValidString(name) {
			t.Errorf("%d bytes are named %q", len(id), name)
		}
		names[name] = true
	}
	if len(names) != 8 {
		t.Errorf("%d names of 8 flows", len(names))
	}
}

// Times to wait that are as long as numbers go do not turn into ones that are over.
func TestEndlessWaits(t *testing.T) {
	now := int64(time.Hour)
	for _, o := range []Options{{TTL: math.MaxInt64, EmptyTTL: math.MaxInt64}, {TTL: math.MaxInt64}, {EmptyTTL: math.MaxInt64}, {}} {
		for _, ordering := range []Ordering{Arrival, Deadline, LatencyTarget, ShortestFirst} {
			o.Default.Ordering = ordering
			c := New(o)
			for range 2 {
				offer(t, c, now, Ask{TTL: math.MaxInt64, Target: math.MaxInt64, Work: math.Inf(1)}, Queued)
				offer(t, c, now, Ask{Target: -1, Work: math.NaN()}, Queued)
				c.SetCapacity(now, Capacity{Endpoints: 1})
				c.Advance(now + int64(24*time.Hour))
				if len(c.Events(nil)) > 0 {
					t.Fatalf("%+v: a wait without an end is over", o)
				}
			}
			c.SetCapacity(now, Capacity{Places: 4, Endpoints: 1})
			if n := len(dispatched(c)); n != 4 {
				t.Errorf("%+v: %d of 4 go", o, n)
			}
		}
	}
}

// Who calls the engines past the group takes its room, but for one place.
func TestForeignLoad(t *testing.T) {
	c := New(tenants)
	c.SetCapacity(1, Capacity{Places: 8, Endpoints: 2})
	for now := int64(2); now < 5; now++ {
		c.Witness(now, 1000)
	}
	first := offer(t, c, 5, Ask{}, Dispatched)
	offer(t, c, 6, Ask{}, Queued)
	c.Witness(7, 1001)
	if n := len(dispatched(c)); n != 0 {
		t.Errorf("%d more go where engines are full", n)
	}
	c.Release(8, first, -1)
	if n := len(dispatched(c)); n != 1 {
		t.Errorf("%d go when the group holds nothing", n)
	}
	c.Witness(9, 1)
	offer(t, c, 10, Ask{}, Dispatched)
}

// Requests that take as much as the whole pool are served while others keep it full, by
// every policy, alone and over replicas.
func TestWholePool(t *testing.T) {
	s := int64(time.Second)
	for _, fairness := range []Fairness{Strict, Places, Work, LeastService} {
		for replicas, share := range map[int][]float64{1: {1}, 3: {.2, .4, .4}} {
			o := tenants
			o.Default.Fairness = fairness
			w := newWorld(2, replicas, 40, 1, o)
			w.streamOf(Ask{Flow: "small", Work: .1}, 44, share)
			w.until(5 * s)
			for range 5 {
				w.offer(w.replicas[0], Ask{Flow: "large", Places: 50, Work: 1})
				w.until(w.now + 20*s)
			}
			if f := w.flow("large"); f.served != 5 {
				t.Errorf("policy %d, %d replicas: %d of 5 that take the whole pool are served", fairness, replicas, f.served)
			}
			w.check(t)
		}
	}
}
