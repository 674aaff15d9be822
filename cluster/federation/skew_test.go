package federation

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// TestClocks: clusters whose clocks differ by ten minutes behave as with one clock. Round trips are
// correct, filters survive key rotation, a withdrawal drains, and a silent cluster expires at the
// end of its lease, by the receiver's clock.
func TestClocks(t *testing.T) {
	for _, skew := range []time.Duration{10 * time.Minute, -10 * time.Minute, 24 * time.Hour} {
		hot := filter.NewHot(100)
		hot.Touch([]block.Key{1, 2, 3, 4})
		r := newSkewedPair(t, skew, []Export{somePool}, func(_ string, o *Options) { o.Rotate = time.Minute })
		for _, c := range r.a {
			c.SetHot(somePool.Pool, hot)
		}
		holds := func() bool {
			c := r.cluster()
			return c.State == Live && len(c.Pools) == 1 && c.Pools[0].Filter.Run([]block.Key{1, 2, 3, 4}) == 4
		}
		r.run(2*time.Second, nil)
		if !holds() || r.cluster().RTT > 100*time.Millisecond || !r.cluster().Until.After(r.now) || r.cluster().Until.After(r.now.Add(simLease)) {
			t.Fatalf("%s apart: %+v", skew, r.cluster())
		}
		r.run(3*time.Minute, func() { // keys rotate three times
			if c := r.cluster(); c.State != Live || !c.Pools[0].Usable(r.now) {
				t.Fatalf("%s apart, at %s: %s %s", skew, r.now, c.State, c.Reason)
			}
		})
		if !holds() {
			t.Errorf("%s apart: hot prefixes are missing after the key rotation", skew)
		}
		for _, c := range r.a {
			c.SetExports(nil, r.now.Add(skew))
		}
		r.run(time.Second, nil)
		if c := r.cluster(); len(c.Pools) != 1 || c.Pools[0].State != Draining || c.Pools[0].Usable(r.now) {
			t.Errorf("%s apart: after the withdrawal: %+v", skew, c)
		}
		r.run(5*simLease, nil)
		if c := r.cluster(); len(c.Pools) != 0 {
			t.Errorf("%s apart: long after the withdrawal: %+v", skew, c)
		}
		clear(r.a)
		r.run(simLease-time.Second/2, nil)
		r.run(time.Second, nil)
		if c := r.cluster(); c.State != Silent {
			t.Errorf("%s apart: all replicas stopped, state is %s", skew, c.State)
		}
	}
}
