package flow

import (
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
