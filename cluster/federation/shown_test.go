package federation

import (
	"testing"
	"time"
)

// mutual are clusters a and b, which ask each other.
type mutual struct {
	now  time.Time
	core map[string]*Core
}

func newMutual(t *testing.T) *mutual {
	t.Helper()
	r := &mutual{now: time.Unix(1_000, 0), core: map[string]*Core{}}
	all := []string{"*/*"}
	for i, name := range []string{"a", "b"} {
		other := []string{"b", "a"}[i]
		c, err := New(Options{Self: name, Replica: name, Boot: uint64(100 + i), Lease: simLease,
			Peers: []PeerOptions{{Name: other, Targets: []string{other}, Export: all, Accept: all}}}, r.now)
		if err != nil {
			t.Fatal(err)
		}
		r.core[name] = c
	}
	return r
}

func (r *mutual) run(d time.Duration) {
	for end := r.now.Add(d); r.now.Before(end); {
		r.now = r.now.Add(50 * time.Millisecond)
		for name, c := range r.core {
			r.deliver(name, c.Tick(r.now, nil))
		}
	}
}

// deliver carries frames. A replica's answers go back on the link of the question,
// which is called as the cluster that asked.
func (r *mutual) deliver(from string, out []Send) {
	for _, m := range out {
		r.deliver(m.Cluster, r.core[m.Cluster].Receive(from, from, m.Frame, r.now, nil))
	}
}

func (r *mutual) told(t *testing.T) Told {
	t.Helper()
	own := r.core["a"].View(r.now).Exports
	if len(own) != 1 || len(own[0].Told) != 1 {
		t.Fatalf("own exports: %+v", own)
	}
	return own[0].Told[0]
}

// TestShown: an exporter learns whether the other cluster has an object for its pool.
func TestShown(t *testing.T) {
	r := newMutual(t)
	r.core["a"].SetExports([]Export{somePool}, r.now)
	want := func(shown Shown, reason string) {
		t.Helper()
		r.run(simLease)
		if got := r.told(t); got != (Told{Cluster: "b", State: Live, Shown: shown, ShownReason: reason}) {
			t.Errorf("a is told %+v", got)
		}
	}
	want(NoObjects, "")
	r.core["b"].SetImports(nil)
	want(NotShown, "")
	r.core["b"].SetImports([]Import{{Pool: PoolKey{"ns", "other"}, Clusters: []string{"a"}}, {Pool: somePool.Pool, Clusters: []string{"c"}, Reason: "no room"}})
	want(NotShown, "no room")
	r.core["b"].SetImports([]Import{{Pool: somePool.Pool, Clusters: []string{"a", "c"}}})
	want(IsShown, "")
}

// TestDrainedByCaller: an export that was told as draining by whoever gives the list
// goes with it.
func TestDrainedByCaller(t *testing.T) {
	r := newMutual(t)
	r.core["a"].SetExports([]Export{somePool}, r.now)
	r.run(simLease)
	draining := somePool
	draining.Draining = true
	r.core["a"].SetExports([]Export{draining}, r.now)
	r.run(simLease)
	if c := r.core["b"].View(r.now).Cluster("a"); len(c.Pools) != 1 || c.Pools[0].State != Draining {
		t.Fatalf("draining: %+v", c.Pools)
	}
	r.core["a"].SetExports(nil, r.now)
	r.run(simLease)
	if c := r.core["b"].View(r.now).Cluster("a"); len(c.Pools) != 0 {
		t.Errorf("gone: %+v", c.Pools)
	}
}
