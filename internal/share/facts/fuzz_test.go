package facts

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// FuzzSoftState decodes arbitrary bytes as a load, a cost and a setup. Accepted values contain only
// usable numbers and take memory proportional to their size.
func FuzzSoftState(f *testing.F) {
	now := time.Unix(1_800_000_000, 0)
	f.Add(appendLoad(nil, endpoint.Load{Requests: 3, Prefill: 1000, Rate: 2.5, Busy: 1, LastFirst: now.Add(-time.Second).UnixNano()}, now))
	f.Add(appendCost(nil, &endpoint.Cost{}))
	f.Add((&setup{secret: 7, models: map[string]uint64{"m": 1, "n": 2}}).append(nil))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		l, _, err := readLoad(b, now)
		if err == nil && (bad(l.Pairs) || bad(l.Rate) || bad(l.Busy) || l.Requests < 0 || l.Waiting < 0 || l.Prefill < 0 || l.Tokens < 0 || l.Context < 0 || l.LastFirst > now.UnixNano()) {
			t.Fatalf("%x: load has invalid numbers: %+v", b, l)
		}
		c, err := readCost(b)
		if err == nil {
			for i, v := range costFields(&c) {
				if bad(*v) {
					t.Fatalf("%x: field %d of the cost is %v", b, i, *v)
				}
			}
		}
		u, err := readSetup(b)
		if err == nil && len(u.models) > len(b) {
			t.Fatalf("%x: %d models", b, len(u.models))
		}
		runtime.ReadMemStats(&after)
		if n := int(after.TotalAlloc - before.TotalAlloc); n > 256<<10+12*len(b) {
			t.Fatalf("%d bytes decode to %d values", len(b), n)
		}
	})
}

// bad reports whether a number would corrupt later calculations.
func bad(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) || v < 0 }
