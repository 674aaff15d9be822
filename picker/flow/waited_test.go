package flow

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// A request that waited elsewhere goes before requests that arrived here earlier but began to wait
// later. Its time to wait counts from its arrival there, and the newest requests are displaced.
func TestRequestsKeepTheirTurn(t *testing.T) {
	const s = int64(time.Second)
	c := New(rules.Options{TTL: 10 * time.Second, Default: rules.Band{MaxRequests: 4}})
	c.SetCapacity(1, rules.Capacity{Permits: 1, Endpoints: 1})
	offer := func(now int64, waited time.Duration) rules.Handle {
		t.Helper()
		h, out := c.Offer(now, rules.Request{Waited: waited})
		if out != rules.Queued {
			t.Fatalf("a request at %v: %v, want queued", time.Duration(now), out)
		}
		return h
	}
	running, out := c.Offer(20*s, rules.Request{})
	if out != rules.Dispatched {
		t.Fatal(out)
	}
	first := offer(21*s, 0)
	newest := offer(23*s, 0)
	moved := offer(24*s, 4*time.Second)   // from 20 s
	between := offer(24*s, 2*time.Second) // from 22 s
	var order []rules.Handle
	next := func() {
		for _, e := range c.Events(nil) {
			if e.Outcome != rules.Dispatched {
				t.Errorf("outcome %v, want dispatched", e.Outcome)
			}
			order, running = append(order, e.Handle), e.Handle
		}
	}
	c.Release(25*s, running, -1)
	next()
	c.Release(25*s, running, -1)
	next()
	if want := []rules.Handle{moved, first}; order[0] != want[0] || order[1] != want[1] {
		t.Errorf("order %v, want %v", order, want)
	}
	if line := c.bands[0].arrivals; c.handle(line.first) != between || c.handle(line.last) != newest {
		t.Errorf("the arrivals are not in order")
	}
	if due := c.Advance(25 * s); due > 32*s {
		t.Errorf("the next deadline is at %v, want 32s", time.Duration(due))
	}
	c.Advance(32*s + 1)
	if e := c.Events(nil); len(e) != 1 || e[0].Handle != between || e[0].Outcome != rules.Expired {
		t.Errorf("events %+v, want the end of the request from 22 s", e)
	}
}

// A longer time than insertSteps requests back is no error.
func TestInsertIsBounded(t *testing.T) {
	c := New(rules.Options{})
	for i := range int64(3 * insertSteps) {
		c.Offer(i+1, rules.Request{})
	}
	c.Offer(3*insertSteps+1, rules.Request{Waited: time.Hour})
	n, last := 0, none
	for i := c.bands[0].arrivals.first; i != none; i = c.slab[i].next {
		if c.slab[i].prev != last {
			t.Fatalf("request %d: broken link", n)
		}
		n, last = n+1, i
	}
	if n != 3*insertSteps+1 || c.bands[0].arrivals.last != last {
		t.Errorf("%d requests in the list, want %d", n, 3*insertSteps+1)
	}
}

// TestClaimedAgeGainsNoShare: a tenant whose requests claim to have waited for an hour gets permits
// in the same turns, and as many, as without the claim. Another tenant's requests, and a higher
// priority, lose nothing.
func TestClaimedAgeGainsNoShare(t *testing.T) {
	const s = int64(time.Second)
	service := rules.Service{WeightService: 1, WeightHeadWait: 1, WeightTime: 1}
	// play returns the flows in the order in which their requests got permits.
	play := func(fairness rules.Fairness, ordering rules.Ordering, others int, claimed time.Duration) (order []string) {
		band := rules.Band{Fairness: fairness, Ordering: ordering, Service: service}
		above := band
		above.Priority = 1
		c := New(rules.Options{Default: band, Bands: []rules.Band{above}})
		c.SetCapacity(s, rules.Capacity{Permits: 8, Endpoints: 2})
		var running []rules.Handle
		for range 4 {
			running = append(running, offer(t, c, s, rules.Request{Flow: "running", Permits: 2}, rules.Dispatched))
		}
		flows := map[rules.Handle]string{}
		ask := func(now int64, a rules.Request) {
			a.Work = 1
			h, out := c.Offer(now, a)
			if flows[h] = a.Flow; out == rules.Dispatched {
				order, running = append(order, a.Flow), append(running, h)
			}
		}
		for i := range others {
			ask(s, rules.Request{Flow: strconv.Itoa(i), Permits: 2})
		}
		for i := int64(0); i < 30 || len(running) > 0; i++ {
			now := s + i*s/10
			if i < 30 {
				ask(now, rules.Request{Flow: "honest", Permits: 2})
				ask(now+1, rules.Request{Flow: "claims", Permits: 6, Waited: claimed})
			}
			if i < 3 {
				ask(now+2, rules.Request{Flow: "above", Priority: 1})
			}
			c.Release(now+3, running[0], .5)
			running = running[1:]
			for _, h := range dispatched(c) {
				order, running = append(order, flows[h]), append(running, h)
			}
		}
		return order
	}
	for _, fairness := range []rules.Fairness{rules.Places, rules.Work, rules.LeastService, rules.MostTurns} {
		for _, ordering := range []rules.Ordering{rules.Arrival, rules.Deadline, rules.LatencyTarget, rules.ShortestFirst} {
			for _, others := range []int{0, 40} { // many flows are searched in another way
				want, got := play(fairness, ordering, others, 0), play(fairness, ordering, others, time.Hour)
				if len(want) != 63+others || !slices.Equal(got, want) {
					t.Errorf("fairness %d, ordering %d, %d others: turns with the claim\n%v, want\n%v", fairness, ordering, others, got, want)
				}
			}
		}
	}
	// One queue for all tenants has no shares: the claim goes first there, and not before a higher priority.
	order := play(rules.Strict, rules.Arrival, 0, time.Hour)
	if at := slices.Index(order, "claims"); at < 3 || order[0] != "above" {
		t.Errorf("strict: the first claim goes at position %d of %v, want it behind all of the higher priority", at, order)
	}
}

// TestClaimedAgeEnds: a request that claims to be older than the longest wait ends at once.
func TestClaimedAgeEnds(t *testing.T) {
	const s = int64(time.Second)
	c := New(rules.Options{TTL: 10 * time.Second})
	c.SetCapacity(s, rules.Capacity{Permits: 1, Endpoints: 1})
	offer(t, c, 3600*s, rules.Request{}, rules.Dispatched)
	h := offer(t, c, 3601*s, rules.Request{Waited: time.Hour}, rules.Queued)
	c.Advance(3601*s + 1)
	if e := c.Events(nil); len(e) != 1 || e[0].Handle != h || e[0].Outcome != rules.Expired {
		t.Errorf("events %+v, want the end of the request", e)
	}
}
