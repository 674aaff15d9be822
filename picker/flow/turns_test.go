package flow

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// TestMostTurns: of waiting flows the one with more dispatched requests goes first, until another
// has waited for long enough. Turns are forgotten after the configured idle time.
func TestMostTurns(t *testing.T) {
	s := int64(time.Second)
	for _, tc := range []struct {
		name  string
		idle  int64 // seconds without a request of the session
		lead  int64 // seconds that the new flow has waited longer
		first string
	}{
		{"turns count", 0, 3, "session"},
		{"waiting counts", 0, 5, "new"},
		{"turns outlast idle flows", 600, 3, "session"},
		{"turns are forgotten", 4000, 3, "new"},
	} {
		c := New(rules.Options{Default: rules.Band{Fairness: rules.MostTurns, Service: rules.Service{WeightTime: .5, Keep: time.Hour}}})
		c.SetCapacity(1, rules.Capacity{Permits: 1, Endpoints: 1})
		now := s
		for range 2 {
			h := offer(t, c, now, rules.Request{Flow: "session"}, rules.Dispatched)
			c.Release(now, h, -1)
		}
		now += tc.idle * s
		c.Advance(now)
		held := offer(t, c, now, rules.Request{Flow: "holder"}, rules.Dispatched)
		handles := map[rules.Handle]string{offer(t, c, now, rules.Request{Flow: "new"}, rules.Queued): "new"}
		now += tc.lead * s
		handles[offer(t, c, now, rules.Request{Flow: "session"}, rules.Queued)] = "session"
		c.Release(now, held, -1)
		if got := dispatched(c); len(got) != 1 || handles[got[0]] != tc.first {
			t.Errorf("%s: %v dispatched, want %s of %v", tc.name, got, tc.first, handles)
		}
	}
}

// TestBandTTL: a band's own limit replaces the general one, in both directions.
func TestBandTTL(t *testing.T) {
	s := int64(time.Second)
	c := New(rules.Options{TTL: 10 * time.Second, EmptyTTL: 10 * time.Second, Default: rules.Band{}, Bands: []rules.Band{
		{Priority: 3, TTL: 2 * time.Second}, {Priority: 2, TTL: time.Minute}, {Priority: 1, TTL: -1},
	}})
	c.SetCapacity(1, rules.Capacity{Endpoints: 1})
	at := map[rules.Handle]int{}
	for _, priority := range []int{3, 2, 1, 0} {
		r := rules.Request{Priority: priority}
		if priority == 1 {
			r.TTL = 15 * time.Second
		}
		at[offer(t, c, s, r, rules.Queued)] = priority
	}
	got := map[int]int64{}
	for second := int64(1); second <= 80; second++ {
		c.Advance(s + second*s)
		for _, e := range c.Events(nil) {
			got[at[e.Handle]] = second
		}
	}
	for priority, seconds := range map[int]int64{3: 2, 2: 60, 1: 15, 0: 10} {
		if got[priority] != seconds {
			t.Errorf("band %d: expired after %d s, want %d", priority, got[priority], seconds)
		}
	}
}
