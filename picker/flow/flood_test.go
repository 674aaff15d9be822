package flow

import (
	"testing"
	"time"
)

// 50,000 requests of 100 KB come to a pool that is full: what waits stays within the bytes
// that are allowed, of the band and of all, everybody else is told at once, and when the
// pool goes on nobody is lost and a newcomer does not wait.
func TestFlood(t *testing.T) {
	const size, offered, limit = 100 << 10, 50_000, 64 << 20
	for _, tc := range []struct {
		name string
		pool Capacity
		want Outcome
	}{
		{"full", Capacity{Places: 8, Endpoints: 1}, RefusedFull},
		{"empty", Capacity{}, RefusedEmpty},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := New(Options{MaxBytes: limit, TTL: time.Hour, EmptyTTL: time.Hour, Default: Band{MaxBytes: limit, Fairness: Places}})
			c.SetCapacity(1, tc.pool)
			now := int64(1)
			var held []Handle
			refused, waiting := 0, 0
			for i := range offered {
				now++
				h, out := c.Offer(now, Ask{Flow: string(rune('a' + i%7)), Priority: i % 2, Bytes: size})
				switch out {
				case Dispatched:
					held = append(held, h)
				case Queued:
					waiting++
				case tc.want:
					refused++
				default:
					t.Fatalf("request %d: outcome %v", i, out)
				}
				for _, e := range c.Events(nil) { // those that made way for others
					if e.Outcome != Displaced {
						t.Fatalf("outcome %v of one that waited", e.Outcome)
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
						t.Fatalf("%d bytes wait, %d are allowed", bytes, limit)
					}
				}
			}
			if want := int(limit / size); waiting != want || len(held)+waiting+refused != offered {
				t.Fatalf("%d are let go, %d wait, %d are refused of %d; want %d that wait", len(held), waiting, refused, offered, want)
			}
			c.SetCapacity(now, Capacity{Places: 8, Endpoints: 1})
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
				t.Errorf("%d are served of %d, busy %v", served, offered-refused, c.Busy())
			}
			if _, out := c.Offer(now+1, Ask{Bytes: size}); out != Dispatched {
				t.Errorf("afterwards: outcome %v", out)
			}
		})
	}
}
