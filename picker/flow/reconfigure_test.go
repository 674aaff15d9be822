package flow

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// order ends what is in flight, one after the other, and returns who went in which order.
func order(c *Core, now int64, names map[Handle]string, holder Handle) (list []string) {
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

// TestReconfigureOrder: requests that wait go on in the order of the new rules, with what
// they asked for when they came.
func TestReconfigureOrder(t *testing.T) {
	asks := []struct {
		name string
		ask  Ask
	}{
		{"a1", Ask{Flow: "a", Work: 9, Target: 900 * time.Millisecond}},
		{"a2", Ask{Flow: "a", Work: 1}},
		{"a3", Ask{Flow: "a", Work: 2, TTL: time.Second}},
		{"b1", Ask{Flow: "b", Work: 3, Target: 100 * time.Millisecond}},
		{"b2", Ask{Flow: "b", Work: .1}},
		{"z", Ask{Flow: "a", Priority: -3}},
	}
	queue := func(o Options) (*Core, map[Handle]string, Handle) {
		c := New(o)
		c.SetCapacity(1, Capacity{Places: 1, Endpoints: 1})
		holder, names := offer(t, c, 2, Ask{}, Dispatched), map[Handle]string{}
		for i, a := range asks {
			names[offer(t, c, 3+int64(i), a.ask, Queued)] = a.name
		}
		return c, names, holder
	}
	for what, tc := range map[string]struct {
		to   Options
		want []string
	}{
		"as before":          {Options{}, []string{"a1", "a2", "a3", "b1", "b2", "z"}},
		"by turns":           {Options{Default: Band{Fairness: Places}}, []string{"a1", "b1", "a2", "b2", "a3", "z"}},
		"shortest first":     {Options{Default: Band{Ordering: ShortestFirst}}, []string{"b2", "a2", "a3", "b1", "a1", "z"}},
		"first-token target": {Options{Default: Band{Ordering: LatencyTarget}}, []string{"b1", "a1", "a2", "a3", "b2", "z"}},
		"deadline":           {Options{TTL: time.Minute, Default: Band{Ordering: Deadline}}, []string{"a3", "a1", "a2", "b1", "b2", "z"}},
	} {
		for _, from := range []Options{{}, {Default: Band{Fairness: Places, Ordering: Deadline}}} {
			c, names, holder := queue(from)
			c.Reconfigure(20, tc.to, nil)
			c.Advance(20)
			if diff := cmp.Diff(tc.want, order(c, 21, names, holder)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
			if c.Busy() {
				t.Errorf("%s: places are held, and nobody holds them", what)
			}
		}
	}
}

// TestReconfigureWeights: a tenant's new weight holds for what waits and for what is in
// flight: places that come free go to who has too few of them now.
func TestReconfigureWeights(t *testing.T) {
	weighted := func(gold float64) Options {
		return Options{Default: Band{Fairness: Places, Weights: map[string]float64{"gold": gold}}}
	}
	c := New(weighted(1))
	c.SetCapacity(1, Capacity{Places: 40, Endpoints: 1})
	now, flows := int64(2), map[Handle]string{}
	var held []Handle
	for i := range 400 {
		now++
		name := []string{"gold", "iron"}[i%2]
		h, out := c.Offer(now, Ask{Flow: name})
		if flows[h] = name; out == Dispatched {
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
		t.Fatalf("%d of 40 places at equal weights", gold())
	}
	c.Reconfigure(now, weighted(3), nil)
	for range 40 {
		now += 10 * ms
		c.Release(now, held[0], -1)
		held = append(held[1:], dispatched(c)...)
	}
	if len(held) != 40 || gold() < 29 || gold() > 31 {
		t.Errorf("gold has %d of %d places at a weight of 3, want 30", gold(), len(held))
	}
}

// TestReconfigureLimits: lower limits and shorter waits hold at once, higher ones end nobody.
func TestReconfigureLimits(t *testing.T) {
	s := int64(time.Second)
	wait := func() (*Core, []Handle) {
		c := New(Options{TTL: time.Minute})
		c.SetCapacity(1, Capacity{Places: 1, Endpoints: 1})
		offer(t, c, 2, Ask{}, Dispatched)
		var list []Handle
		for i := range 10 {
			list = append(list, offer(t, c, int64(i+1)*s, Ask{Bytes: 10, Priority: -i / 5}, Queued))
		}
		return c, list
	}
	ended := func(c *Core) (list []Event) { c.Advance(11 * s); return c.Events(nil) }
	for what, tc := range map[string]struct {
		to   Options
		want func(h []Handle) []Event
	}{
		"higher": {Options{TTL: time.Hour, MaxRequests: 10}, func([]Handle) []Event { return nil }},
		"fewer in all": {Options{MaxRequests: 8}, func(h []Handle) []Event {
			return []Event{{h[9], Displaced}, {h[8], Displaced}}
		}},
		"bytes of a band": {Options{Default: Band{MaxBytes: 30}, Negative: Band{MaxBytes: 1000}}, func(h []Handle) []Event {
			return []Event{{h[4], Displaced}, {h[3], Displaced}}
		}},
		"shorter": {Options{TTL: 9 * time.Second}, func(h []Handle) []Event {
			return []Event{{h[0], Expired}, {h[1], Expired}}
		}},
	} {
		c, list := wait()
		c.Reconfigure(11*s, tc.to, nil)
		if diff := cmp.Diff(tc.want(list), ended(c)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	// Three replicas give up their parts of what is over a limit that they share.
	c, list := wait()
	c.Hear(11*s, "other", []Gauge{{Requests: 20, Waiting: 20}})
	c.Reconfigure(11*s, Options{MaxRequests: 15}, nil)
	if got := len(ended(c)); got != 5 {
		t.Errorf("%d of %d make way, want this replica's half", got, len(list))
	}
}

// TestReconfigureSeeds: whatever the rules change to while requests come, wait, run and end:
// each ends once, places and bytes are those of who is there, no more are in flight than
// the capacity has, and at the end nobody is left.
func TestReconfigureSeeds(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 11))
		sizing := Sizing{Unit: Requests}
		capacity := func() Capacity {
			return Capacity{Places: map[Unit]int64{Requests: 6, Tokens: 900}[sizing.Unit], Endpoints: 2}
		}
		rules := func() Options {
			band := Band{Fairness: Fairness(rng.IntN(4)), Ordering: Ordering(rng.IntN(4)), Weights: map[string]float64{"f1": 1 + rng.Float64()}}
			o := Options{Default: band, Negative: band, TTL: time.Duration(1+rng.IntN(60)) * time.Second, Evict: rng.IntN(2) == 0}
			o.MaxRequests, o.Default.MaxBytes = int64(20+rng.IntN(40)), int64(1000+rng.IntN(4000))
			if rng.IntN(2) == 0 {
				o.Bands = []Band{{Priority: 2, Fairness: Places}, {Priority: -1}}
			}
			return o
		}
		c := New(rules())
		now := int64(1)
		c.SetCapacity(now, capacity())
		waiting, flying := map[Handle]Ask{}, map[Handle]Ask{}
		take := func() {
			for _, e := range c.Events(nil) {
				a, ok := waiting[e.Handle]
				if e.Outcome == Evicted {
					continue
				}
				if !ok {
					t.Fatalf("seed %d: outcome %v of a request that does not wait", seed, e.Outcome)
				}
				if delete(waiting, e.Handle); e.Outcome == Dispatched {
					flying[e.Handle] = a
				}
			}
			bytes, places := int64(0), int64(0)
			for _, a := range waiting {
				bytes += a.Bytes
			}
			for _, a := range flying {
				places += sizing.Places(int(a.Tokens))
			}
			if c.waiting != len(waiting) || c.bytes != bytes || c.own != places {
				t.Fatalf("seed %d: %d requests of %d bytes wait, %d places are held; the core says %d, %d, %d",
					seed, len(waiting), bytes, places, c.waiting, c.bytes, c.own)
			}
		}
		for range 300 {
			now += rng.Int64N(200 * ms)
			switch n := rng.IntN(20); {
			case n == 0:
				before := len(flying)
				if rng.IntN(3) == 0 {
					sizing.Unit = Requests + Tokens - sizing.Unit
				}
				c.Reconfigure(now, rules(), func(tokens int64) int64 { return sizing.Places(int(tokens)) })
				if take(); len(flying) != before {
					t.Fatalf("seed %d: let go by rules before their capacity is known", seed)
				}
				c.SetCapacity(now, capacity())
				c.Advance(now)
			case n < 11:
				a := Ask{Flow: fmt.Sprint("f", rng.IntN(4)), Priority: rng.IntN(5) - 2, Bytes: rng.Int64N(400), Tokens: 1 + rng.Int64N(200), Work: rng.Float64(), Endable: true}
				a.Places = sizing.Places(int(a.Tokens))
				switch h, out := c.Offer(now, a); out {
				case Dispatched:
					flying[h] = a
				case Queued:
					waiting[h] = a
				}
			case n < 12 && len(waiting) > 0:
				h := slices.Min(slices.Collect(maps.Keys(waiting)))
				if !c.Cancel(now, h) {
					t.Fatalf("seed %d: who waits cannot leave", seed)
				}
			case len(flying) > 0:
				h := slices.Min(slices.Collect(maps.Keys(flying)))
				delete(flying, h)
				if !c.Release(now, h, rng.Float64()) {
					t.Fatalf("seed %d: who is in flight cannot end", seed)
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
			t.Fatalf("seed %d: %d wait, %d places are held, %d are being ended after everything ended", seed, len(waiting), c.own, len(c.revoked))
		}
	}
}

// TestReconfigureRevoked: a request that was told to end is forgotten when it has ended, also
// where the rules have come to count it among those that cannot be ended.
func TestReconfigureRevoked(t *testing.T) {
	c := New(Options{Evict: true})
	c.SetCapacity(1, Capacity{Places: 1, Endpoints: 1})
	h := offer(t, c, 2, Ask{Priority: -1, Endable: true}, Dispatched)
	offer(t, c, 3, Ask{}, Queued)
	if diff := cmp.Diff([]Event{{h, Evicted}}, c.Events(nil)); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
	o := Options{Evict: true}
	for p := range maxBands { // no band is left for lower priorities: they join the lowest
		o.Bands = append(o.Bands, Band{Priority: p})
	}
	c.Reconfigure(4, o, nil)
	if c.Release(5, h, -1); c.Status(6, 0).Evicting != 0 {
		t.Error("a request that has ended is still being ended")
	}
	c.Reconfigure(7, Options{}, nil)
	if c.Advance(8); len(dispatched(c)) != 1 {
		t.Error("who waited has no place")
	}
}
