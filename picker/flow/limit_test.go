package flow

import (
	"fmt"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// crowded returns a core without permits in which each of that many flows has one waiting request,
// up to the limit.
func crowded(flows int) *Core {
	c := New(rules.Options{Default: rules.Band{Fairness: rules.Places, MaxRequests: int64(flows)}})
	c.SetCapacity(1, rules.Capacity{Endpoints: 1})
	for i := range flows {
		c.Offer(1, rules.Request{Flow: fmt.Sprint("f", i)})
	}
	return c
}

// TestLargestOfMany: with thousands of flows, new requests displace requests of the largest flow
// and, shortly after a change, requests of the new largest flow.
func TestLargestOfMany(t *testing.T) {
	const flows = 5000
	c := crowded(flows)
	for at, big := range []string{"f7", "f4000"} {
		now := int64(at+1) * shareEvery * 2
		c.bands[0].MaxRequests += 10
		for range 10 {
			if _, out := c.Offer(now, rules.Request{Flow: big}); out != rules.Queued {
				t.Fatalf("outcome is %v although there is room", out)
			}
		}
		now += shareEvery
		for i := range 10 {
			if _, out := c.Offer(now, rules.Request{Flow: fmt.Sprint("new", at, i)}); out != rules.Queued {
				t.Errorf("new request %d: %v, although %s has the most", i, out, big)
			}
		}
		if n := c.flows[flowKey{big, 0}].queued(); n != 1 {
			t.Errorf("%d requests of %s wait after 10 of 11 were displaced", n, big)
		}
		if _, out := c.Offer(now, rules.Request{Flow: "late"}); out != rules.RefusedFull {
			t.Errorf("outcome is %v although no flow has more than one", out)
		}
	}
}

// BenchmarkShed refuses requests at a full queue, by the number of waiting flows.
func BenchmarkShed(b *testing.B) {
	for _, flows := range []int{16, 5000, 9000} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) {
			c := crowded(flows)
			now := int64(1)
			for b.Loop() {
				now += 20_000 // 50,000 per second
				if _, out := c.Offer(now, rules.Request{Flow: "f3"}); out != rules.RefusedFull {
					b.Fatal(out)
				}
			}
		})
	}
}
