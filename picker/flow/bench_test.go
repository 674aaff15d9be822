package flow

import (
	"fmt"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// BenchmarkPump ends a request and dispatches the next, with that many requests waiting in that
// many flows.
func BenchmarkPump(b *testing.B) {
	for _, tc := range []struct{ waiters, flows int }{{10, 1}, {10, 4}, {5000, 64}, {50000, 64}, {50000, 1000}, {50000, 10000}} {
		b.Run(fmt.Sprintf("waiters=%d/flows=%d", tc.waiters, tc.flows), func(b *testing.B) {
			c := New(rules.Options{Default: rules.Band{Fairness: rules.Places}})
			c.SetCapacity(1, rules.Capacity{Permits: 256, Endpoints: 8})
			names := make([]string, tc.flows)
			for i := range names {
				names[i] = fmt.Sprint("tenant-", i)
			}
			now := int64(2)
			running := make([]rules.Handle, 0, 512)
			for i := range 256 + tc.waiters {
				if h, out := c.Offer(now, rules.Request{Flow: names[i%tc.flows]}); out == rules.Dispatched {
					running = append(running, h)
				}
			}
			events := make([]rules.Event, 0, 16)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				now += 3000
				c.Offer(now, rules.Request{Flow: names[i%tc.flows]})
				c.Release(now, running[i%256], -1)
				events = c.Events(events[:0])
				running[i%256] = events[0].Handle
				i++
			}
		})
	}
}
