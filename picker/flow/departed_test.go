package flow

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// TestDepartedPermits: the permits of a departed replica stay in use while the engines run its
// requests. They are free once the engines' gauges show the end, or after some service times without
// gauges. Its waiting requests no longer count.
func TestDepartedPermits(t *testing.T) {
	for _, tc := range []struct {
		name    string
		running int64 // requests of the departed replica that engines run; below 0: no gauges
		want    int   // permits of the 40 that this replica gets
	}{
		{"engines run all of its requests", 20, 20}, {"half of them have ended", 10, 30}, {"all have ended", 0, 40},
		{"no gauges", -1, 40},
	} {
		c := New(tenants)
		c.SetCapacity(1, rules.Capacity{Permits: 40, Endpoints: 1})
		c.ReceiveShares(1, "other", nil)
		now := 1 + 2*learning
		c.ReceiveShares(now, "other", []rules.Gauge{{Flow: "f", InFlight: 20, Waiting: 30, Requests: 30}})
		c.ObserveRunning(now, now, 20)
		c.PeerLeft(now, "other")
		if s := c.Status(now, 1); s.Lost != 20 || s.Replicas != 1 {
			t.Errorf("%s: %d permits of %d replicas are unaccounted for, want 20 of 1", tc.name, s.Lost, s.Replicas)
		}
		for range 60 {
			c.Offer(now, rules.Request{Flow: "g"})
		}
		for range 300 {
			now += int64(100 * time.Millisecond)
			if tc.running >= 0 {
				c.ObserveRunning(now, now, tc.running+c.Status(now, 0).Own)
			}
			c.Advance(now)
		}
		s := c.Status(now, 9)
		if own := int(s.Own); own > tc.want || own < tc.want-1 { // shares are rounded down
			t.Errorf("%s: this replica has %d permits, want %d", tc.name, own, tc.want)
		}
		for _, b := range s.Bands {
			if b.Others != 0 {
				t.Errorf("%s: %d requests wait at a departed replica", tc.name, b.Others)
			}
		}
	}
}

// TestOldGaugesFreePermitsOnce: replicas observe the same readings of the engines several times. After
// each of several kills, the survivors take the dead replica's permits only once.
func TestOldGaugesFreePermitsOnce(t *testing.T) {
	s := int64(time.Second)
	worst := int64(0)
	for seed := range uint64(6) {
		w := newWorld(seed, 3, 48, 1, tenants)
		w.stale, w.sigma = true, .3
		w.until(s)
		w.users("small", 20)
		w.users("middle", 60)
		w.users("large", 400)
		w.until(w.now + 10*s)
		for i := range 6 {
			r := w.replicas[i%3]
			w.most = w.running
			w.kill(r)
			w.until(w.now + 10*s)
			w.start(r, tenants)
			w.until(w.now + 10*s)
			if worst = max(worst, w.most); w.most > 52 {
				t.Errorf("seed %d, kill %d: %d permits in flight, want at most 48", seed, i, w.most)
			}
		}
		w.check(t)
	}
	t.Logf("at most %d of 48", worst)
}

// TestStoppedReplicaHolds: while a replica's process is stopped, its peers take its permits. When it
// continues, its view of the peers is old. It waits for their gauges before it dispatches requests,
// and then uses only free permits.
func TestStoppedReplicaHolds(t *testing.T) {
	const pause = int64(5 * time.Second)
	c := New(tenants)
	now := int64(1)
	c.SetCapacity(now, rules.Capacity{Permits: 24, Endpoints: 1})
	turn := func(others int64) {
		now += 50 * ms
		c.ReceiveShares(now, "other", []rules.Gauge{{Flow: "f", InFlight: others, Waiting: 30, Requests: 30}})
		c.ObserveRunning(now, now, others+c.own)
		c.Advance(now)
	}
	for range 60 {
		turn(12)
	}
	var held []rules.Handle
	for range 40 {
		if h, out := c.Offer(now, rules.Request{Flow: "f"}); out == rules.Dispatched {
			held = append(held, h)
		}
	}
	for range 60 {
		turn(12)
		for _, e := range c.Events(nil) {
			held = append(held, e.Handle)
		}
	}
	if c.own != 12 {
		t.Fatalf("%d permits before the pause, want 12", c.own)
	}
	now += pause
	for _, h := range held {
		c.Release(now, h, 1)
	}
	c.Advance(now)
	if c.own != 0 {
		t.Errorf("%d requests dispatched just after the pause, want 0", c.own)
	}
	for range 40 {
		turn(24)
		if c.own > 1 { // one is always allowed
			t.Fatalf("%d permits while the other replica holds all", c.own)
		}
	}
	for range 40 {
		turn(12)
	}
	if c.own < 10 {
		t.Errorf("%d permits two seconds after 12 became free", c.own)
	}
}
