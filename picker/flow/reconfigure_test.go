package flow

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// order ends in-flight requests one after another and returns the order of dispatch.
func order(c *Core, now int64, names map[rules.Handle]string, holder rules.Handle) (list []string) {
	for {
		now++
		c.Release(now, holder, -1)
		next := dispatched(c)
		if len(next) != 1 {
			return list
		}
		holder = next[0]
		list = append(list, names[holder])
	}
}

// TestReconfigureOrder: waiting requests are dispatched in the new order, with the attributes of
// their arrival.
func TestReconfigureOrder(t *testing.T) {
	asks := []struct {
		name string
		ask  rules.Request
	}{
		{"a1", rules.Request{Flow: "a", Work: 9, Target: 900 * time.Millisecond}},
		{"a2", rules.Request{Flow: "a", Work: 1}},
		{"a3", rules.Request{Flow: "a", Work: 2, TTL: time.Second}},
		{"b1", rules.Request{Flow: "b", Work: 3, Target: 100 * time.Millisecond}},
		{"b2", rules.Request{Flow: "b", Work: .1}},
		{"z", rules.Request{Flow: "a", Priority: -3}},
	}
	queue := func(o rules.Options) (*Core, map[rules.Handle]string, rules.Handle) {
		c := New(o)
		c.SetCapacity(1, rules.Capacity{Permits: 1, Endpoints: 1})
		holder, names := offer(t, c, 2, rules.Request{}, rules.Dispatched), map[rules.Handle]string{}
		for i, a := range asks {
			names[offer(t, c, 3+int64(i), a.ask, rules.Queued)] = a.name
		}
		return c, names, holder
	}
	for what, tc := range map[string]struct {
		to   rules.Options
		want []string
	}{
		"as before":          {rules.Options{}, []string{"a1", "a2", "a3", "b1", "b2", "z"}},
		"by turns":           {rules.Options{Default: rules.Band{Fairness: rules.Places}}, []string{"a1", "b1", "a2", "b2", "a3", "z"}},
		"shortest first":     {rules.Options{Default: rules.Band{Ordering: rules.ShortestFirst}}, []string{"b2", "a2", "a3", "b1", "a1", "z"}},
		"first-token target": {rules.Options{Default: rules.Band{Ordering: rules.LatencyTarget}}, []string{"b1", "a1", "a2", "a3", "b2", "z"}},
		"deadline":           {rules.Options{TTL: time.Minute, Default: rules.Band{Ordering: rules.Deadline}}, []string{"a3", "a1", "a2", "b1", "b2", "z"}},
	} {
		for _, from := range []rules.Options{{}, {Default: rules.Band{Fairness: rules.Places, Ordering: rules.Deadline}}} {
			c, names, holder := queue(from)
			c.Reconfigure(20, tc.to, nil)
			c.Advance(20)
			if diff := cmp.Diff(tc.want, order(c, 21, names, holder)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
			if c.Busy() {
				t.Errorf("%s: permits are held without a holder", what)
			}
		}
	}
}

// TestReconfigureWeights: a tenant's new weight applies to waiting and in-flight requests. Freed
// permits go to the tenant below its new share.
func TestReconfigureWeights(t *testing.T) {
	weighted := func(gold float64) rules.Options {
		return rules.Options{Default: rules.Band{Fairness: rules.Places, Weights: map[string]float64{"gold": gold}}}
	}
	c := New(weighted(1))
	c.SetCapacity(1, rules.Capacity{Permits: 40, Endpoints: 1})
	now, flows := int64(2), map[rules.Handle]string{}
	var held []rules.Handle
	for i := range 400 {
		now++
		name := []string{"gold", "iron"}[i%2]
		h, out := c.Offer(now, rules.Request{Flow: name})
		if flows[h] = name; out == rules.Dispatched {
			held = append(held, h)
		}
	}
	gold := func() (n int) {
		for _, h := range held {
			if flows[h] == "gold" {
				n++
			}
		}
		return n
	}
	if gold() != 20 {
		t.Fatalf("gold has %d of 40 permits at equal weights", gold())
	}
	c.Reconfigure(now, weighted(3), nil)
	for range 40 {
		now += 10 * ms
		c.Release(now, held[0], -1)
		held = append(held[1:], dispatched(c)...)
	}
	if len(held) != 40 || gold() < 29 || gold() > 31 {
		t.Errorf("gold has %d of %d permits at a weight of 3, want 30", gold(), len(held))
	}
}

// TestReconfigureLimits: lower limits and shorter TTLs apply immediately; higher ones end no
// request.
func TestReconfigureLimits(t *testing.T) {
	s := int64(time.Second)
	wait := func() (*Core, []rules.Handle) {
		c := New(rules.Options{TTL: time.Minute})
		c.SetCapacity(1, rules.Capacity{Permits: 1, Endpoints: 1})
		offer(t, c, 2, rules.Request{}, rules.Dispatched)
		var list []rules.Handle
		for i := range 10 {
			list = append(list, offer(t, c, int64(i+1)*s, rules.Request{Bytes: 10, Priority: -i / 5}, rules.Queued))
		}
		return c, list
	}
	ended := func(c *Core) (list []rules.Event) { c.Advance(11 * s); return c.Events(nil) }
	for what, tc := range map[string]struct {
		to   rules.Options
		want func(h []rules.Handle) []rules.Event
	}{
		"higher": {rules.Options{TTL: time.Hour, MaxRequests: 10}, func([]rules.Handle) []rules.Event { return nil }},
		"fewer in all": {rules.Options{MaxRequests: 8}, func(h []rules.Handle) []rules.Event {
			return []rules.Event{{Handle: h[9], Outcome: rules.Displaced}, {Handle: h[8], Outcome: rules.Displaced}}
		}},
		"bytes of a band": {rules.Options{Default: rules.Band{MaxBytes: 30}, Negative: rules.Band{MaxBytes: 1000}}, func(h []rules.Handle) []rules.Event {
			return []rules.Event{{Handle: h[4], Outcome: rules.Displaced}, {Handle: h[3], Outcome: rules.Displaced}}
		}},
		"shorter": {rules.Options{TTL: 9 * time.Second}, func(h []rules.Handle) []rules.Event {
			return []rules.Event{{Handle: h[0], Outcome: rules.Expired}, {Handle: h[1], Outcome: rules.Expired}}
		}},
	} {
		c, list := wait()
		c.Reconfigure(11*s, tc.to, nil)
		if diff := cmp.Diff(tc.want(list), ended(c)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	// Three replicas each displace their part of the excess over a shared limit.
	c, list := wait()
	c.ReceiveShares(11*s, "other", []rules.Gauge{{Requests: 20, Waiting: 20}})
	c.Reconfigure(11*s, rules.Options{MaxRequests: 15}, nil)
	if got := len(ended(c)); got != 5 {
		t.Errorf("%d of %d displaced, want this replica's half", got, len(list))
	}
}

// TestReconfigureSeeds changes the rules at random while requests arrive, wait, run and end. Each
// request ends once, permits and bytes match the present requests, permits in flight stay within
// the capacity, and no request is left at the end.
func TestReconfigureSeeds(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 11))
		sizing := rules.Sizing{Unit: rules.Requests}
		capacity := func() rules.Capacity {
			return rules.Capacity{Permits: map[rules.Unit]int64{rules.Requests: 6, rules.Tokens: 900}[sizing.Unit], Endpoints: 2}
		}
		draw := func() rules.Options {
			band := rules.Band{Fairness: rules.Fairness(rng.IntN(4)), Ordering: rules.Ordering(rng.IntN(4)), Weights: map[string]float64{"f1": 1 + rng.Float64()}}
			o := rules.Options{Default: band, Negative: band, TTL: time.Duration(1+rng.IntN(60)) * time.Second, Evict: rng.IntN(2) == 0}
			o.MaxRequests, o.Default.MaxBytes = int64(20+rng.IntN(40)), int64(1000+rng.IntN(4000))
			if rng.IntN(2) == 0 {
				o.Bands = []rules.Band{{Priority: 2, Fairness: rules.Places}, {Priority: -1}}
			}
			return o
		}
		c := New(draw())
		now := int64(1)
		c.SetCapacity(now, capacity())
		waiting, flying := map[rules.Handle]rules.Request{}, map[rules.Handle]rules.Request{}
		take := func() {
			for _, e := range c.Events(nil) {
				a, ok := waiting[e.Handle]
				if e.Outcome == rules.Evicted {
					continue
				}
				if !ok {
					t.Fatalf("seed %d: outcome %v of a request that was not waiting", seed, e.Outcome)
				}
				if delete(waiting, e.Handle); e.Outcome == rules.Dispatched {
					flying[e.Handle] = a
				}
			}
			bytes, places := int64(0), int64(0)
			for _, a := range waiting {
				bytes += a.Bytes
			}
			for _, a := range flying {
				places += sizing.Permits(int(a.Tokens))
			}
			if c.waiting != len(waiting) || c.bytes != bytes || c.own != places {
				t.Fatalf("seed %d: %d requests with %d bytes wait, %d permits held; the core has %d, %d, %d",
					seed, len(waiting), bytes, places, c.waiting, c.bytes, c.own)
			}
		}
		for range 300 {
			now += rng.Int64N(200 * ms)
			switch n := rng.IntN(20); {
			case n == 0:
				before := len(flying)
				if rng.IntN(3) == 0 {
					sizing.Unit = rules.Requests + rules.Tokens - sizing.Unit
				}
				c.Reconfigure(now, draw(), func(tokens int64) int64 { return sizing.Permits(int(tokens)) })
				if take(); len(flying) != before {
					t.Fatalf("seed %d: dispatched under new rules before their capacity was set", seed)
				}
				c.SetCapacity(now, capacity())
				c.Advance(now)
			case n < 11:
				a := rules.Request{Flow: fmt.Sprint("f", rng.IntN(4)), Priority: rng.IntN(5) - 2, Bytes: rng.Int64N(400), Tokens: 1 + rng.Int64N(200), Work: rng.Float64(), Endable: true}
				a.Permits = sizing.Permits(int(a.Tokens))
				switch h, out := c.Offer(now, a); out {
				case rules.Dispatched:
					flying[h] = a
				case rules.Queued:
					waiting[h] = a
				}
			case n < 12 && len(waiting) > 0:
				h := slices.Min(slices.Collect(maps.Keys(waiting)))
				if !c.Cancel(now, h) {
					t.Fatalf("seed %d: Cancel of a waiting request returned false", seed)
				}
			case len(flying) > 0:
				h := slices.Min(slices.Collect(maps.Keys(flying)))
				delete(flying, h)
				if !c.Release(now, h, rng.Float64()) {
					t.Fatalf("seed %d: Release of an in-flight request returned false", seed)
				}
			}
			take()
		}
		for len(flying) > 0 {
			now += ms
			h := slices.Min(slices.Collect(maps.Keys(flying)))
			delete(flying, h)
			c.Release(now, h, -1)
			take()
		}
		if c.Busy() || len(waiting) > 0 || len(c.revoked) > 0 {
			t.Fatalf("seed %d: %d waiting, %d permits held, %d revocations after all requests ended", seed, len(waiting), c.own, len(c.revoked))
		}
	}
}

// TestReconfigureRevoked: an evicted request is removed when it ends, even if the new rules do not
// consider it evictable.
func TestReconfigureRevoked(t *testing.T) {
	c := New(rules.Options{Evict: true})
	c.SetCapacity(1, rules.Capacity{Permits: 1, Endpoints: 1})
	h := offer(t, c, 2, rules.Request{Priority: -1, Endable: true}, rules.Dispatched)
	offer(t, c, 3, rules.Request{}, rules.Queued)
	if diff := cmp.Diff([]rules.Event{{Handle: h, Outcome: rules.Evicted}}, c.Events(nil)); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
	o := rules.Options{Evict: true}
	for p := range maxBands { // no band is left for lower priorities: they join the lowest
		o.Bands = append(o.Bands, rules.Band{Priority: p})
	}
	c.Reconfigure(4, o, nil)
	if c.Release(5, h, -1); c.Status(6, 0).Evicting != 0 {
		t.Error("revocation of an ended request was kept")
	}
	c.Reconfigure(7, rules.Options{}, nil)
	if c.Advance(8); len(dispatched(c)) != 1 {
		t.Error("dispatched request holds no permit")
	}
}

// TestReconfigureCountsEvictedPermits: permits of an evicted request, recomputed for the new unit, are
// expected to become free. No second request is evicted for them.
func TestReconfigureCountsEvictedPermits(t *testing.T) {
	c := New(rules.Options{Evict: true})
	c.SetCapacity(1, rules.Capacity{Permits: 4, Endpoints: 1})
	offer(t, c, 2, rules.Request{Priority: -1, Endable: true, Permits: 2, Tokens: 4}, rules.Dispatched)
	offer(t, c, 3, rules.Request{Priority: -1, Endable: true, Permits: 2, Tokens: 4}, rules.Dispatched)
	offer(t, c, 4, rules.Request{Permits: 2, Tokens: 4}, rules.Queued)
	evicted := func() (n int) {
		for _, e := range c.Events(nil) {
			if e.Outcome == rules.Evicted {
				n++
			}
		}
		return n
	}
	if got := evicted(); got != 1 {
		t.Fatalf("%d requests were evicted, want 1", got)
	}
	c.Reconfigure(5, rules.Options{Evict: true}, func(tokens int64) int64 { return tokens })
	c.SetCapacity(6, rules.Capacity{Permits: 8, Endpoints: 1})
	c.Advance(7)
	if got := evicted(); got != 0 {
		t.Errorf("%d further requests were evicted for the same permits, want none", got)
	}
}
