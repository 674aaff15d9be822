package endpoint

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// TestNeedTimes checks that the learned time of a load is the difference to requests that needed no
// load, and that it has no price before it was seen several times.
func TestNeedTimes(t *testing.T) {
	var n NeedTimes
	missing := Needs(0).With(NeedAdapter)
	n.Observe(missing, .7)
	if s := n.Seconds(NeedAdapter); s != 0 {
		t.Errorf("Seconds() = %v after one load, want 0", s)
	}
	for range 20 {
		n.Observe(missing, .7)
		n.Observe(0, .2)
	}
	if s := n.Seconds(NeedAdapter); math.Abs(s-.5) > .01 {
		t.Errorf("Seconds() = %v, want 0.5", s)
	}
	for range 100 {
		n.Observe(0, 3)
	}
	if s := n.Seconds(NeedAdapter); s != 0 {
		t.Errorf("Seconds() = %v, want 0 where loads make no difference", s)
	}
}

// TestHoldsAdapter checks that the most recently used adapters count as loaded, up to the number of
// slots, by requests and by the engine's report.
func TestHoldsAdapter(t *testing.T) {
	p := NewPool(PoolOptions{})
	p.Set(specs(1))
	ep, now := p.Snapshot().Endpoints[0], time.Unix(1_700_000_000, 0)
	key := func(i int) uint64 { return ModelKey(fmt.Sprint("a", i)) }
	for i := range 4 {
		ep.UseAdapter(key(i), now.Add(time.Duration(i)*time.Second))
	}
	ep.SetGauges(Gauges{At: now.Add(time.Minute), LoRA: &LoRA{Max: 2, Running: []string{"a0"}}})
	for i, want := range []bool{true, false, false, true} {
		if got := ep.HoldsAdapter(key(i), 2); got != want {
			t.Errorf("adapter %d: HoldsAdapter() = %v, want %v", i, got, want)
		}
		if !ep.HoldsAdapter(key(i), 0) {
			t.Errorf("adapter %d is missing, although the number of slots is unknown", i)
		}
	}
	for i := range 3 * mostAdapters {
		ep.UseAdapter(key(i), now.Add(2*time.Minute+time.Duration(i)))
	}
	if n := len(ep.adapters.used); n > mostAdapters {
		t.Errorf("%d adapters are tracked, want at most %d", n, mostAdapters)
	}
}
