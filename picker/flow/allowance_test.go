package flow

import (
	"fmt"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// pair returns two connected cores with 40 permits. Each holds 20, and that many more wait at each.
func pair(waiting int) (cores [2]*Core, now int64) {
	for i := range cores {
		c := New(tenants)
		c.SetCapacity(1, rules.Capacity{Permits: 40, Endpoints: 1})
		c.ReceiveShares(1, "other", nil)
		other := []rules.Gauge{{Flow: fmt.Sprint("f", 1-i), InFlight: 20, Waiting: int64(waiting), Requests: int64(waiting)}}
		now = 1 + 2*learning
		c.ReceiveShares(now, "other", other)
		c.ObserveRunning(now, now, 20)
		for range 20 + waiting {
			c.Offer(now, rules.Request{Flow: fmt.Sprint("f", i)})
		}
		for range 20 {
			now += 20 * ms
			c.ReceiveShares(now, "other", other)
		}
		cores[i] = c
	}
	return cores, now
}

// hear sends a's gauges to b.
func hear(now int64, a, b *Core) { b.ReceiveShares(now, "other", a.Gauges(nil)) }

// Permits that become free are visible to both replicas. Neither takes more than its part, however
// often it receives outdated gauges of the other.
func TestFreePlacesAreTakenOnce(t *testing.T) {
	cores, now := pair(30)
	old := [2][]rules.Gauge{cores[0].Gauges(nil), cores[1].Gauges(nil)}
	if a, b := cores[0].own, cores[1].own; a != 20 || b != 20 {
		t.Fatalf("%d and %d of 40 permits are held", a, b)
	}
	for i, c := range cores {
		c.SetCapacity(now, rules.Capacity{Permits: 60, Endpoints: 1})
		for n := range int64(10) {
			c.ReceiveShares(now+n*ms, "other", old[1-i])
		}
	}
	if n := cores[0].own + cores[1].own; n < 58 || n > 62 {
		t.Errorf("%d of 60 permits are held", n)
	}
}

// Permits that one replica does not need go to the other once the first has reported that.
func TestFreePlacesAreNotKept(t *testing.T) {
	cores, now := pair(0)
	busy, quiet := cores[0], cores[1]
	for range 40 {
		busy.Offer(now, rules.Request{Flow: "f0"})
	}
	busy.SetCapacity(now, rules.Capacity{Permits: 60, Endpoints: 1})
	for range 20 {
		now += 20 * ms
		hear(now, quiet, busy)
		busy.Advance(now)
	}
	if busy.own != 40 {
		t.Errorf("%d of 40 permits are held by the only replica with demand", busy.own)
	}
}

// If engines are read for the first time later, gauges in transit explain the requests that run
// there.
func TestFirstReadingIsExplained(t *testing.T) {
	c := New(tenants)
	c.SetCapacity(1, rules.Capacity{Permits: 60, Endpoints: 1})
	c.ReceiveShares(1, "other", nil)
	now := 1 + 400*ms
	c.ObserveRunning(now, now, 30)
	if got := c.fleet.stray; got != 30 {
		t.Fatalf("%g permits are unaccounted, want 30", got)
	}
	c.ReceiveShares(now+20*ms, "other", []rules.Gauge{{Flow: "f", InFlight: 30}})
	if got := c.fleet.stray; got != 0 {
		t.Errorf("%g permits are unaccounted after the peer reported them", got)
	}
}

// When a silent member sends gauges again, it accounts for its own permits. They are not counted
// twice until engines are read.
func TestReturnedIsCountedOnce(t *testing.T) {
	for told, want := range map[int64]int64{20: 20, 5: 20, 0: 20, 25: 25} {
		c := New(tenants)
		c.SetCapacity(1, rules.Capacity{Permits: 60, Endpoints: 1})
		c.ReceiveShares(1, "other", []rules.Gauge{{Flow: "f", InFlight: 20}})
		c.ObserveRunning(2, 2, 20)
		c.Advance(3 + silentAfter)
		if c.fleet.ghost != 20 {
			t.Fatalf("%g permits belong to a silent member, want 20", c.fleet.ghost)
		}
		if got := c.inFlight(); got != 20 {
			t.Errorf("%d permits are in flight after a member with 20 became silent, want 20", got)
		}
		c.ReceiveShares(4+silentAfter, "other", []rules.Gauge{{Flow: "f", InFlight: told}})
		if got := c.inFlight(); got != want {
			t.Errorf("%d permits are in flight after it reported %d, want %d", got, told, want)
		}
	}
}
