package flow

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

const ms = int64(time.Millisecond)

// offer offers a request and checks the outcome.
func offer(t *testing.T, c *Core, now int64, a rules.Request, want rules.Outcome) rules.Handle {
	t.Helper()
	h, got := c.Offer(now, a)
	if got != want {
		t.Fatalf("offer %+v: %v, want %v", a, got, want)
	}
	return h
}

// dispatched returns the handles dispatched since the last call, in order.
func dispatched(c *Core) (list []rules.Handle) {
	for _, e := range c.Events(nil) {
		if e.Outcome == rules.Dispatched {
			list = append(list, e.Handle)
		}
	}
	return list
}

func TestOrderings(t *testing.T) {
	asks := []rules.Request{
		{TTL: 5 * time.Second, Target: 900 * time.Millisecond, Work: 3},
		{TTL: 3 * time.Second, Work: 1},
		{TTL: 4 * time.Second, Target: 100 * time.Millisecond, Work: 1},
		{TTL: 9 * time.Second, Target: math.MaxInt64, Work: .1},
	}
	for ordering, want := range map[rules.Ordering][]int{
		rules.Arrival: {0, 1, 2, 3}, rules.Deadline: {1, 2, 0, 3}, rules.LatencyTarget: {2, 0, 1, 3}, rules.ShortestFirst: {3, 1, 2, 0},
	} {
		c := New(rules.Options{Default: rules.Band{Ordering: ordering}})
		c.SetCapacity(1, rules.Capacity{Permits: 1, Endpoints: 1})
		holder := offer(t, c, 2, rules.Request{}, rules.Dispatched)
		at := map[rules.Handle]int{}
		for i, a := range asks {
			at[offer(t, c, 3+int64(i), a, rules.Queued)] = i
		}
		var got []int
		for range asks {
			c.Release(100, holder, -1)
			next := dispatched(c)
			if len(next) != 1 {
				t.Fatalf("ordering %d: one permit dispatched %d requests", ordering, len(next))
			}
			holder, got = next[0], append(got, at[next[0]])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ordering %d (-want +got):\n%s", ordering, diff)
		}
	}
}

// TestAgeing: no request is overtaken by requests that arrived more than Ageing times its own
// predicted work later.
func TestAgeing(t *testing.T) {
	c := New(rules.Options{Default: rules.Band{Ordering: rules.ShortestFirst}})
	c.SetCapacity(1, rules.Capacity{Permits: 1, Endpoints: 1})
	holder := offer(t, c, 2, rules.Request{}, rules.Dispatched)
	long := offer(t, c, 3, rules.Request{Work: 2}, rules.Queued)
	for now := int64(time.Second); now < 60*int64(time.Second); now += int64(time.Second) {
		offer(t, c, now, rules.Request{Work: .01}, rules.Queued)
		c.Release(now, holder, -1)
		holder = dispatched(c)[0]
		if holder == long {
			if now > 8*int64(time.Second) {
				t.Errorf("request waited %v", time.Duration(now))
			}
			return
		}
	}
	t.Error("long request starved")
}

func TestLimits(t *testing.T) {
	c := New(rules.Options{MaxRequests: 4, MaxBytes: 1000, Bands: []rules.Band{{Priority: 1, MaxRequests: 3}, {Priority: -1, MaxBytes: 100}}})
	c.SetCapacity(1, rules.Capacity{Permits: 1, Endpoints: 1})
	holder := offer(t, c, 2, rules.Request{}, rules.Dispatched)
	offer(t, c, 3, rules.Request{Priority: -1, Bytes: 60}, rules.Queued)
	offer(t, c, 4, rules.Request{Priority: -1, Bytes: 60}, rules.RefusedFull)
	low := offer(t, c, 5, rules.Request{Priority: -1, Bytes: 40}, rules.Queued)
	for range 3 {
		offer(t, c, 6, rules.Request{Priority: 1}, rules.Queued)
	}
	offer(t, c, 7, rules.Request{Priority: 1}, rules.RefusedFull)
	if diff := cmp.Diff([]rules.Event{{Handle: low, Outcome: rules.Displaced}}, c.Events(nil)); diff != "" {
		t.Errorf("displaced requests (-want +got):\n%s", diff)
	}
	offer(t, c, 8, rules.Request{Priority: 0, Bytes: 2000}, rules.RefusedFull)
	c.Release(9, holder, -1)
	if c.waiting != 2 || c.bytes != 0 {
		t.Errorf("%d requests with %d bytes wait, want 2 with 0", c.waiting, c.bytes)
	}
}

func TestExpiry(t *testing.T) {
	s := int64(time.Second)
	c := New(rules.Options{TTL: 10 * time.Second, EmptyTTL: 3 * time.Second})
	offer(t, c, s, rules.Request{}, rules.Queued) // no endpoint yet
	if next := c.Advance(2 * s); next != 4*s {
		t.Errorf("next %v, want 4s", time.Duration(next))
	}
	c.SetCapacity(3*s, rules.Capacity{Endpoints: 1}) // all are full: the TTL of ten seconds starts here
	short := offer(t, c, 3*s, rules.Request{TTL: time.Second}, rules.Queued)
	c.Advance(4*s - 1)
	if e := c.Events(nil); len(e) != 0 {
		t.Errorf("requests ended early: %v", e)
	}
	c.Advance(4 * s)
	if diff := cmp.Diff([]rules.Event{{Handle: short, Outcome: rules.Expired}}, c.Events(nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if next := c.Advance(5 * s); next != 13*s {
		t.Errorf("next %v, want 13s", time.Duration(next))
	}
	c.SetCapacity(12*s, rules.Capacity{})
	if next := c.Advance(12 * s); next != 13*s { // arrival + the longer TTL + 2 s
		t.Errorf("next %v, want 13s", time.Duration(next))
	}
	c.Advance(13 * s)
	if e := c.Events(nil); len(e) != 1 || e[0].Outcome != rules.ExpiredEmpty {
		t.Errorf("events %v", e)
	}
}

func TestUsageLimits(t *testing.T) {
	ceilings := func(l rules.UsageLimit, s float64, priorities ...int) []float64 {
		out := make([]float64, len(priorities))
		l.Ceilings(s, priorities, out)
		for i := range out {
			out[i] = math.Round(out[i]*1000) / 1000
		}
		return out
	}
	for _, tc := range []struct {
		got, want []float64
	}{
		{ceilings(rules.Holdback{Min: .7, Max: 1}, 0, 10, 0, -1), []float64{1, .85, .7}},
		{ceilings(rules.Holdback{Min: .7, Max: 1, ByValue: true}, 0, 10, 0, -1), []float64{1, .727, .7}},
		{ceilings(rules.Holdback{Min: .7, Max: 1}, 0, 5), []float64{1}},
		{ceilings(&rules.Reflective{}, .5, 2, 1, 0), []float64{1, 1, 1}},
		{ceilings(&rules.Reflective{}, .6, 2, 1, 0), []float64{1, 1, 1}},
		{ceilings(&rules.Reflective{}, 1, 2, 1, 0), []float64{1, 0, 0}},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	for s, period := range map[float64]int{.7: 2, .9: 9} {
		l, open := &rules.Reflective{}, 0
		for range 90 {
			open += int(ceilings(l, s, 2, 1, 0)[2])
		}
		if open != 90/period {
			t.Errorf("saturation %g: open on %d of 90 calls, want one in %d", s, open, period)
		}
	}
}

// TestHoldback: a lower band leaves permits for a higher one.
func TestHoldback(t *testing.T) {
	c := New(rules.Options{Limit: rules.Holdback{Min: .5, Max: 1}, Bands: []rules.Band{{Priority: 1}, {Priority: 0}}})
	c.SetCapacity(1, rules.Capacity{Permits: 10, Endpoints: 1})
	offer(t, c, 2, rules.Request{Priority: 1}, rules.Dispatched)
	for range 4 {
		offer(t, c, 3, rules.Request{}, rules.Dispatched)
	}
	offer(t, c, 4, rules.Request{}, rules.Queued)
	for range 5 {
		offer(t, c, 5, rules.Request{Priority: 1}, rules.Dispatched)
	}
	offer(t, c, 6, rules.Request{Priority: 1}, rules.Queued)
}

func TestWaterfill(t *testing.T) {
	for _, tc := range []struct {
		places               float64
		demand, weight, want []float64
	}{
		{10, []float64{1, 4, 20}, []float64{1, 1, 1}, []float64{1, 4, 5}},
		{10, []float64{1, 4, 20}, []float64{1, 2, 7}, []float64{1, 2, 7}},
		{256, []float64{50, 400, 4000}, []float64{1, 10, 100}, []float64{2.306, 23.063, 230.631}},
		{256, []float64{1, 400, 4000}, []float64{1, 10, 100}, []float64{1, 23.182, 231.818}},
		{256, []float64{100, 100, 40}, []float64{1, 1, 1}, []float64{100, 100, 40}},
	} {
		var flows []*flow
		for i, d := range tc.demand {
			flows = append(flows, &flow{id: fmt.Sprint(i), waiting: int64(d), weight: tc.weight[i]})
		}
		sorted := slices.Clone(flows)
		byDemand(sorted, natural)
		waterfill(sorted, tc.places, natural, func(f *flow, v float64) { f.fair = v })
		for i, f := range flows {
			if math.Abs(f.fair-tc.want[i]) > .001 {
				t.Errorf("%v of %g by %v: flow %d gets %g, want %g", tc.demand, tc.places, tc.weight, i, f.fair, tc.want[i])
			}
		}
	}
}

// TestFairness: with any demand, waiting flows get permits by weight, or by work with that policy.
func TestFairness(t *testing.T) {
	for _, tc := range []struct {
		fairness rules.Fairness
		weights  map[string]float64
		work     map[string]float64
		want     map[string]float64 // fraction of requests
	}{
		{rules.Places, nil, nil, map[string]float64{"a": 1. / 3, "b": 1. / 3, "c": 1. / 3}},
		{rules.Places, map[string]float64{"a": 2}, nil, map[string]float64{"a": .5, "b": .25, "c": .25}},
		{rules.Work, nil, map[string]float64{"a": 1, "b": 2, "c": 4}, map[string]float64{"a": 4. / 7, "b": 2. / 7, "c": 1. / 7}},
		{rules.LeastService, nil, map[string]float64{"a": 1, "b": 2, "c": 4}, map[string]float64{"a": 4. / 7, "b": 2. / 7, "c": 1. / 7}},
	} {
		c := New(rules.Options{Default: rules.Band{Fairness: tc.fairness, Weights: tc.weights, Service: rules.Service{WeightService: 1}}})
		c.SetCapacity(1, rules.Capacity{Permits: 24, Endpoints: 1})
		random := rand.New(rand.NewPCG(1, 2))
		ask := func(now int64) {
			id := "a"
			if n := random.IntN(10); n < 2 {
				id = string(rune('b' + n))
			}
			work := tc.work[id]
			if work == 0 {
				work = 1
			}
			c.Offer(now, rules.Request{Flow: id, Work: work})
		}
		now := int64(2)
		for range 4000 {
			ask(now)
		}
		var running []rules.Handle
		got, total := map[string]float64{}, 0.
		for len(running) < 24 {
			running = append(running, 0)
		}
		for i := range c.slab {
			if c.slab[i].state == rules.Dispatched && c.slab[i].flow != nil {
				running = append(running, c.handle(int32(i)))
			}
		}
		running = running[24:]
		for range 500 {
			now += 10 * ms
			at := random.IntN(len(running))
			c.Release(now, running[at], -1)
			for _, h := range dispatched(c) {
				running[at] = h
				got[c.slab[c.slot(h)].flow.id]++
				total++
			}
		}
		for id, share := range tc.want {
			if math.Abs(got[id]/total-share) > .06 {
				t.Errorf("fairness %d, flow %s: %.2f of requests, want %.2f", tc.fairness, id, got[id]/total, share)
			}
		}
	}
}

// TestStrictPriority: a lower band gets nothing while a higher one waits.
func TestStrictPriority(t *testing.T) {
	c := New(rules.Options{})
	c.SetCapacity(1, rules.Capacity{Permits: 1, Endpoints: 1})
	holder := offer(t, c, 2, rules.Request{}, rules.Dispatched)
	low := offer(t, c, 3, rules.Request{Priority: -5}, rules.Queued)
	high := offer(t, c, 4, rules.Request{Priority: 5}, rules.Queued)
	c.Release(5, holder, -1)
	c.Release(6, high, -1)
	if diff := cmp.Diff([]rules.Handle{high, low}, dispatched(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLargeRequest: small requests of other flows overtake a request with many permits for a while,
// and then it is dispatched.
func TestLargeRequest(t *testing.T) {
	c := New(rules.Options{Default: rules.Band{Fairness: rules.Places}})
	c.SetCapacity(1, rules.Capacity{Permits: 10, Endpoints: 1})
	var running []rules.Handle
	for range 10 {
		running = append(running, offer(t, c, 2, rules.Request{Flow: "small"}, rules.Dispatched))
	}
	large := offer(t, c, 3, rules.Request{Flow: "large", Permits: 8}, rules.Queued)
	for now := int64(3); now < int64(3*time.Second); now += 10 * ms {
		c.Offer(now, rules.Request{Flow: "small"})
		c.Release(now, running[0], -1)
		running = append(running[1:], dispatched(c)...)
		if slices.Contains(running, large) {
			return
		}
		if len(running) == 0 {
			break
		}
	}
	t.Error("large request starved")
}

func TestHandles(t *testing.T) {
	c := New(rules.Options{})
	c.SetCapacity(1, rules.Capacity{Permits: 1, Endpoints: 1})
	h := offer(t, c, 2, rules.Request{}, rules.Dispatched)
	w := offer(t, c, 3, rules.Request{}, rules.Queued)
	if c.Cancel(4, h) {
		t.Error("a dispatched request was cancelled")
	}
	if !c.Cancel(4, w) || c.Cancel(4, w) {
		t.Error("a waiting request was not cancelled exactly once")
	}
	c.Release(5, w, -1)
	c.Release(5, h, -1)
	c.Release(5, h, -1)
	c.Release(5, rules.Handle(99)<<32|7, -1)
	if c.own != 0 || c.waiting != 0 {
		t.Errorf("%d permits in flight, %d requests waiting", c.own, c.waiting)
	}
}

// TestManyFlows: arbitrary client-provided IDs take bounded memory.
func TestManyFlows(t *testing.T) {
	c := New(rules.Options{TTL: time.Second, Default: rules.Band{Fairness: rules.Places}})
	c.SetCapacity(1, rules.Capacity{Permits: 1, Endpoints: 1})
	holder := offer(t, c, 2, rules.Request{}, rules.Dispatched)
	for i := range maxFlows + 1000 {
		offer(t, c, 3, rules.Request{Flow: fmt.Sprint("flow ", i)}, rules.Queued)
	}
	if n := len(c.flows); n > maxFlows+sharedFlows {
		t.Errorf("%d flows kept", n)
	}
	c.Advance(2 * int64(time.Second))
	c.Release(2*int64(time.Second), holder, -1)
	if c.waiting != 0 || c.own != 0 {
		t.Fatalf("%d waiting, %d in flight", c.waiting, c.own)
	}
	c.Advance(int64(time.Hour))
	if len(c.flows) != 0 {
		t.Errorf("%d flows kept an hour later", len(c.flows))
	}
}

// TestFlowsKeepNoHeaders: a flow keeps only its name, not the request that created it.
func TestFlowsKeepNoHeaders(t *testing.T) {
	headers := strings.Repeat("x", 60_000) + "tenant"
	id := headers[60_000:]
	c := New(rules.Options{Default: rules.Band{Fairness: rules.Places}})
	c.SetCapacity(1, rules.Capacity{Permits: 1, Endpoints: 1})
	c.Release(3, offer(t, c, 2, rules.Request{Flow: id}, rules.Dispatched), -1)
	for key, f := range c.flows {
		if unsafe.StringData(key.id) == unsafe.StringData(id) || unsafe.StringData(f.id) == unsafe.StringData(id) {
			t.Error("flow name shares memory with the request's headers")
		}
	}
}

func TestOfferAllocates(t *testing.T) {
	c := New(rules.Options{Default: rules.Band{Fairness: rules.Places}})
	c.SetCapacity(1, rules.Capacity{Permits: 100, Endpoints: 1})
	now := int64(2)
	if n := testing.AllocsPerRun(1000, func() {
		now += 1000
		h, _ := c.Offer(now, rules.Request{Flow: "a"})
		c.Release(now, h, 1)
	}); n != 0 {
		t.Errorf("%g allocations for a request that does not wait, want 0", n)
	}
}

// TestEvict: for a request of higher priority without room, the newest in-flight request of the
// lowest priority is evicted, at most two at a time, and only evictable ones.
func TestEvict(t *testing.T) {
	s := int64(time.Second)
	c := New(rules.Options{Evict: true})
	c.SetCapacity(1, rules.Capacity{Permits: 5, Endpoints: 1})
	fixed := offer(t, c, 2, rules.Request{Priority: -5}, rules.Dispatched)
	lowest := offer(t, c, 3, rules.Request{Priority: -3, Endable: true}, rules.Dispatched)
	old := offer(t, c, 4, rules.Request{Priority: -1, Endable: true}, rules.Dispatched)
	young := offer(t, c, 5, rules.Request{Priority: -1, Endable: true}, rules.Dispatched)
	usual := offer(t, c, 6, rules.Request{Endable: true}, rules.Dispatched)
	events := func(want ...rules.Event) {
		t.Helper()
		if diff := cmp.Diff(want, c.Events(nil)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	}
	offer(t, c, 7, rules.Request{Priority: -3, Endable: true}, rules.Queued)
	events() // no eviction for the same priority
	first := offer(t, c, 8, rules.Request{}, rules.Queued)
	events(rules.Event{Handle: lowest, Outcome: rules.Evicted})
	offer(t, c, 9, rules.Request{}, rules.Queued)
	events(rules.Event{Handle: young, Outcome: rules.Evicted})
	third := offer(t, c, 10, rules.Request{}, rules.Queued)
	events() // two at a time
	c.Release(11, lowest, -1)
	events(rules.Event{Handle: first, Outcome: rules.Dispatched}, rules.Event{Handle: old, Outcome: rules.Evicted})
	c.Cancel(12, third)
	c.Release(13, young, -1)
	if got := dispatched(c); len(got) != 1 {
		t.Fatalf("dispatched: %v", got)
	}
	c.Advance(14 * s) // old does not end
	if st := c.Status(14*s, 1); st.Evicting != 0 || st.Outcomes["evicted"] != 3 || st.Outcomes["evicted_late"] != 1 {
		t.Errorf("status %+v", st)
	}
	offer(t, c, 15*s, rules.Request{}, rules.Queued)
	events() // no candidate is left: evicted already, of priority 0, or not evictable
	c.Release(16*s, old, -1)
	if got := dispatched(c); len(got) != 1 {
		t.Errorf("dispatched: %v", got)
	}
	c.Release(17*s, fixed, -1)
	c.Release(17*s, usual, -1)
	if got := dispatched(c); len(got) != 1 { // the one with priority -3
		t.Errorf("dispatched: %v", got)
	}
}

// TestEvictSeeds: in any sequence of events, only in-flight requests with priorities below 0 are
// evicted, each once, and only while a higher one waits.
func TestEvictSeeds(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		c := New(rules.Options{Evict: true, MaxRequests: 20})
		places := int64(3 + rng.IntN(6))
		c.SetCapacity(1, rules.Capacity{Permits: places, Endpoints: 1})
		priority, inFlight, waiting, told := map[rules.Handle]int{}, map[rules.Handle]bool{}, map[rules.Handle]bool{}, map[rules.Handle]bool{}
		now := int64(1)
		take := func() {
			for _, e := range c.Events(nil) {
				switch e.Outcome {
				case rules.Dispatched:
					inFlight[e.Handle] = true
				case rules.Evicted:
					higher := false
					for h := range waiting {
						higher = higher || priority[h] > priority[e.Handle]
					}
					if !inFlight[e.Handle] || told[e.Handle] || priority[e.Handle] >= 0 || !higher {
						t.Fatalf("seed %d: %v of priority %d was evicted; in flight %v, evicted %v", seed, e.Handle, priority[e.Handle], inFlight[e.Handle], told[e.Handle])
					}
					told[e.Handle] = true
					continue
				}
				delete(waiting, e.Handle)
			}
			if len(inFlight) > int(places) {
				t.Fatalf("seed %d: %d in flight with %d permits", seed, len(inFlight), places)
			}
		}
		for range 400 {
			now += rng.Int64N(20 * ms)
			switch {
			case rng.IntN(2) == 0:
				a := rules.Request{Priority: rng.IntN(5) - 2, Endable: rng.IntN(4) > 0, Flow: fmt.Sprint(rng.IntN(3))}
				h, out := c.Offer(now, a)
				if priority[h] = a.Priority; out == rules.Queued {
					waiting[h] = true
				} else if out == rules.Dispatched {
					inFlight[h] = true
				}
			default:
				for _, h := range slices.Sorted(maps.Keys(inFlight)) {
					if rng.IntN(2) == 0 {
						continue
					}
					if len(told) > 0 && !told[h] && rng.IntN(3) > 0 {
						continue
					}
					delete(inFlight, h)
					delete(told, h)
					c.Release(now, h, -1)
					break
				}
			}
			take()
			if n := c.Status(now, 0).Evicting; n > mostRevoked || n != len(told) {
				t.Fatalf("seed %d: %d revocations, want %d", seed, n, len(told))
			}
		}
	}
}

// TestBacklog: the backlog of all replicas in seconds of the pool's work; unknown until a request
// has ended.
func TestBacklog(t *testing.T) {
	s := int64(time.Second)
	c := New(rules.Options{})
	c.SetCapacity(1, rules.Capacity{Permits: 4, Endpoints: 1})
	f := func(want float64) {
		t.Helper()
		got := c.Status(3*s, 0).Backlog
		if want < 0 != (got == nil) || got != nil && math.Abs(*got-want) > 1e-6 {
			t.Errorf("backlog %v, want %v", deref(got), want)
		}
	}
	f(0)
	holder := offer(t, c, 1, rules.Request{Permits: 4}, rules.Dispatched)
	offer(t, c, 2, rules.Request{}, rules.Queued)
	f(-1)
	c.ReceiveShares(2, "other", []rules.Gauge{{Flow: "", Requests: 3, Waiting: 3}})
	offer(t, c, 2, rules.Request{Permits: 4}, rules.Queued)
	for at := int64(2); at < 2+2*s; at += 100 * ms {
		c.ReceiveShares(at, "other", []rules.Gauge{{Flow: "", Requests: 3, Waiting: 3}})
	}
	c.Release(2+2*s, holder, -1) // it took 2 s; the first waiter gets one permit
	f(2 * (3. + 4.) / 4)
	c.SetCapacity(3*s, rules.Capacity{})
	f(2 * (3. + 4.) / 1)
}

func deref(v *float64) float64 {
	if v == nil {
		return -1
	}
	return *v
}

// TestExpected: a new request waits for all requests of higher bands and, in its own band, for its
// flow's requests times the number of sharing flows.
func TestExpected(t *testing.T) {
	s := int64(time.Second)
	c := New(rules.Options{Bands: []rules.Band{{Priority: 5}, {Priority: 0, Fairness: rules.Places}}})
	c.SetCapacity(1, rules.Capacity{Permits: 2, Endpoints: 1})
	f := func(h rules.Handle, want float64) {
		t.Helper()
		got, known := c.Expected(h)
		if known != (want >= 0) || known && math.Abs(got-want) > 1e-6 {
			t.Errorf("Expected() = %v s (known: %v), want %v", got, known, want)
		}
	}
	first := offer(t, c, 1, rules.Request{Flow: "a", Permits: 2}, rules.Dispatched)
	f(first, -1) // it is not waiting
	waits := offer(t, c, 1, rules.Request{Flow: "a", Permits: 2}, rules.Queued)
	f(waits, -1)                // no request has ended yet
	c.Release(1+4*s, first, -1) // it took 4 s, and waits is dispatched
	f(offer(t, c, 5*s, rules.Request{Flow: "a"}, rules.Queued), 4*1./2)
	f(offer(t, c, 5*s, rules.Request{Flow: "a", Permits: 2}, rules.Queued), 4*3./2)
	f(offer(t, c, 5*s, rules.Request{Flow: "b"}, rules.Queued), 4*2./2)              // shared with the other flow
	f(offer(t, c, 5*s, rules.Request{Flow: "x", Priority: 5}, rules.Queued), 4*1./2) // ahead of all
	f(offer(t, c, 5*s, rules.Request{Flow: "c"}, rules.Queued), 4*(1+3.)/2)          // behind the high one, with three flows
	c.ReceiveShares(5*s, "other", []rules.Gauge{{Flow: "c", Requests: 9, Waiting: 9}})
	f(offer(t, c, 5*s, rules.Request{Flow: "c"}, rules.Queued), 4*(1+15.)/2) // at most the time for all waiting requests
}
