package flow

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// 50,000 requests of 100 KB arrive at a full pool. The waiting requests stay within the byte limits
// of the band and in total, and all others are refused immediately. When the pool continues, no
// request is lost and a new one does not wait.
func TestFlood(t *testing.T) {
	const size, offered, limit = 100 << 10, 50_000, 64 << 20
	for _, tc := range []struct {
		name string
		pool rules.Capacity
		want rules.Outcome
	}{
		{"full", rules.Capacity{Permits: 8, Endpoints: 1}, rules.RefusedFull},
		{"empty", rules.Capacity{}, rules.RefusedEmpty},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := New(rules.Options{MaxBytes: limit, TTL: time.Hour, EmptyTTL: time.Hour, Default: rules.Band{MaxBytes: limit, Fairness: rules.Places}})
			c.SetCapacity(1, tc.pool)
			now := int64(1)
			var held []rules.Handle
			refused, waiting := 0, 0
			for i := range offered {
				now++
				h, out := c.Offer(now, rules.Request{Flow: string(rune('a' + i%7)), Priority: i % 2, Bytes: size})
				switch out {
				case rules.Dispatched:
					held = append(held, h)
				case rules.Queued:
					waiting++
				case tc.want:
					refused++
				default:
					t.Fatalf("request %d: outcome %v", i, out)
				}
				for _, e := range c.Events(nil) { // displaced for others
					if e.Outcome != rules.Displaced {
						t.Fatalf("outcome %v of a waiting request", e.Outcome)
					}
					waiting--
					refused++
				}
				if s := c.Status(now, 0); i%5000 == 0 || i == offered-1 {
					bytes := int64(0)
					for _, b := range s.Bands {
						bytes += b.Bytes
					}
					if bytes > limit {
						t.Fatalf("%d bytes waiting, limit is %d", bytes, limit)
					}
				}
			}
			if want := int(limit / size); waiting != want || len(held)+waiting+refused != offered {
				t.Fatalf("%d dispatched, %d waiting, %d refused of %d; want %d waiting", len(held), waiting, refused, offered, want)
			}
			c.SetCapacity(now, rules.Capacity{Permits: 8, Endpoints: 1})
			served := 0
			for {
				for _, e := range c.Events(nil) {
					held = append(held, e.Handle)
				}
				if len(held) == 0 {
					break
				}
				now++
				c.Release(now, held[0], -1)
				held = held[1:]
				served++
			}
			if served != offered-refused || c.Busy() {
				t.Errorf("%d of %d served, Busy() = %v", served, offered-refused, c.Busy())
			}
			if _, out := c.Offer(now+1, rules.Request{Bytes: size}); out != rules.Dispatched {
				t.Errorf("outcome afterwards: %v", out)
			}
		})
	}
}
