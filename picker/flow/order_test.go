package flow

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// After any events, the heap of flows yields the same flow as a scan, and a band's cached sums
// equal the sums over its flows.
func TestHeapOfFlowsIsAScan(t *testing.T) {
	for _, fairness := range []rules.Fairness{rules.Places, rules.Work} {
		for seed := range uint64(6) {
			rng := rand.New(rand.NewPCG(seed, uint64(fairness)))
			c := New(rules.Options{Default: rules.Band{Fairness: fairness, Weights: map[string]float64{"f1": 3, "f2": .5}}, TTL: time.Minute})
			c.SetCapacity(1, rules.Capacity{Permits: 60, Endpoints: 4})
			now, searched := int64(1), 0
			var open []rules.Handle
			for step := range 3000 {
				now += rng.Int64N(3 * ms)
				n := rng.IntN(20)
				if step < 200 {
					n = 0 // a request arrives
				}
				switch {
				case n < 9:
					a := rules.Request{Flow: fmt.Sprint("f", rng.IntN(40)), Work: rng.Float64(), Permits: 1 + rng.Int64N(2)}
					if h, out := c.Offer(now, a); out == rules.Dispatched || out == rules.Queued {
						open = append(open, h)
					}
				case n < 18 && len(open) > 0:
					at := rng.IntN(len(open))
					if h := open[at]; !c.Release(now, h, 2*rng.Float64()) {
						c.Cancel(now, h)
					}
					open[at] = open[len(open)-1]
					open = open[:len(open)-1]
				case n == 18 && seed%2 == 0:
					c.ReceiveShares(now, "other", []rules.Gauge{{Flow: fmt.Sprint("f", rng.IntN(50)), InFlight: rng.Int64N(20), Waiting: rng.Int64N(9), Requests: 1}})
				default:
					c.Advance(now)
				}
				c.Events(nil)
				for _, b := range c.bands {
					checkBand(t, c, b)
					if !b.many() {
						continue
					}
					c.refresh()
					searched++
					f, g := c.search(b, 1), c.scan(b, 1)
					if f != g && (f == nil || g == nil || f.score != g.score || f.servedAt != g.servedAt) {
						t.Fatalf("seed %d: heap returns %+v, scan returns %+v", seed, f, g)
					}
				}
			}
			if searched < 100 {
				t.Errorf("seed %d: only %d times did more than %d flows wait", seed, searched, mostScanned)
			}
		}
	}
}

func checkBand(t *testing.T, c *Core, b *band) {
	t.Helper()
	weights, entitled, places := 0., 0., int64(0)
	for _, f := range b.live {
		places += f.waiting
		if f.waiting+f.others.Waiting > 0 {
			weights += f.weight
		}
	}
	for _, f := range b.active {
		entitled += f.part(0)
	}
	if got := c.entitled(b); math.Abs(got-entitled) > 1e-6 || math.Abs(weights-b.weights) > 1e-6 || places != b.places {
		t.Fatalf("band has %g entitled permits, weight %g and %d waiting; its flows have %g, %g and %d", got, b.weights, b.places, entitled, weights, places)
	}
}
