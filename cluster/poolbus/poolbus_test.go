package poolbus_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/clustertest"
	"github.com/grapevine-epp/grapevine/cluster/poolbus"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// process is one replica with several pools.
type process struct {
	self  cluster.Member
	bus   *poolbus.Bus
	pools map[string]*clustertest.Replica
}

func start(t *testing.T, hub *clustertest.Hub, name string, pools ...string) *process {
	t.Helper()
	p := &process{self: cluster.NewMember(name, "test"), pools: map[string]*clustertest.Replica{}}
	p.bus = poolbus.New(poolbus.Options{Bus: hub.Bus(p.self)})
	if err := p.bus.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, pool := range pools {
		p.serve(t, pool)
	}
	return p
}

func (p *process) serve(t *testing.T, pool string) {
	t.Helper()
	r := clustertest.NewReplica(cluster.Options{Self: p.self, Bus: p.bus.Part(pool)})
	r.Start(t, "engine")
	p.pools[pool] = r
}

// drop stops serving a pool.
func (p *process) drop(t *testing.T, pool string) {
	t.Helper()
	r := p.pools[pool]
	delete(p.pools, pool)
	if err := r.Leave(t.Context()); err != nil {
		t.Error(err)
	}
	clustertest.Stop(t, r)
}

func (p *process) stop(t *testing.T) {
	t.Helper()
	for pool := range p.pools {
		p.drop(t, pool)
	}
	if err := p.bus.Close(); err != nil {
		t.Error(err)
	}
}

// TestPoolsShareSeparately: each pool of three replicas shares its own gauges, hints and logs, under
// the same names of members, keys and sources.
func TestPoolsShareSeparately(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := clustertest.NewHub()
		var all []*process
		for i := range 3 {
			p := start(t, hub, fmt.Sprintf("r%d", i), "one", "two")
			defer p.stop(t)
			all = append(all, p)
		}
		of := func(pool string) (out []*clustertest.Replica) {
			for _, p := range all {
				out = append(out, p.pools[pool])
			}
			return out
		}
		for _, pool := range []string{"one", "two"} {
			testkit.Eventually(t, func() string { return clustertest.Joined(of(pool)...) })
		}
		sources := []string{"engine"}
		for i, p := range all {
			for pool, r := range p.pools {
				if err := r.Load.Set("k", fmt.Appendf(nil, "%s of %d", pool, i)); err != nil {
					t.Fatal(err)
				}
				r.Hints.Send([]byte(pool))
			}
		}
		testkit.Eventually(t, func() string { return clustertest.ReadAll(sources, 9, of("one")...) })
		testkit.Eventually(t, func() string { return clustertest.ReadAll(sources, 4, of("two")...) })
		for _, pool := range []string{"one", "two"} {
			for i, r := range of(pool) {
				testkit.Eventually(t, func() string { return r.LoadMismatch(fmt.Sprintf("%s of %d", pool, i), of(pool)...) })
				for _, o := range of(pool) {
					if got := o.Feeds.Get(r.Self().ID, "hint"); o != r && got != pool {
						t.Errorf("pool %s: hint of %s is %q, want %q", pool, r.Self().Name, got, pool)
					}
				}
			}
		}
		time.Sleep(5 * time.Second) // beats and digests of both pools
		for _, r := range of("one") {
			if got := r.Sums.Get("engine"); got != 55 {
				t.Errorf("pool one: sum is %d at %s after the other pool's deltas, want 55", got, r.Self().Name)
			}
		}
	})
}

// TestMembersOfPool: a pool lists only the replicas that serve it, and does not wait for others.
func TestMembersOfPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := clustertest.NewHub()
		a, b := start(t, hub, "a", "one", "two"), start(t, hub, "b", "one")
		defer a.stop(t)
		defer b.stop(t)
		testkit.Eventually(t, func() string { return clustertest.Joined(a.pools["one"], b.pools["one"]) })
		time.Sleep(5 * time.Second)
		if peers, _ := a.pools["two"].Peers(); len(peers) != 0 {
			t.Errorf("pool two lists %d peers, want none: only this replica serves it", len(peers))
		}
		if phase := a.pools["two"].Phase(); phase == cluster.Settling {
			t.Errorf("pool two is %v, want it to serve alone", phase)
		}
		b.serve(t, "two")
		testkit.Eventually(t, func() string { return clustertest.Joined(a.pools["two"], b.pools["two"]) })
		if err := b.pools["two"].Load.Set("k", []byte("v")); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, func() string { return b.pools["two"].LoadMismatch("v", a.pools["two"]) })

		b.drop(t, "two")
		synctest.Wait()
		time.Sleep(3 * time.Second)
		if peers, _ := a.pools["two"].Peers(); len(peers) != 0 {
			t.Errorf("pool two lists %d peers after the other replica stopped serving it, want none", len(peers))
		}
		if got := a.pools["two"].Loads.Get(b.self.ID, "k"); got != "" {
			t.Errorf("load of the replica that left pool two is %q, want none", got)
		}
		if why := clustertest.Joined(a.pools["one"], b.pools["one"]); why != "" {
			t.Errorf("pool one after pool two was removed: %s", why)
		}
		b.serve(t, "two") // the same process again
		testkit.Eventually(t, func() string { return clustertest.Joined(a.pools["two"], b.pools["two"]) })
	})
}

// TestKilledReplica: all pools lose a replica that vanishes.
func TestKilledReplica(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := clustertest.NewHub()
		a, b := start(t, hub, "a", "one", "two"), start(t, hub, "b", "one", "two")
		defer a.stop(t)
		defer b.stop(t)
		for pool := range a.pools {
			testkit.Eventually(t, func() string { return clustertest.Joined(a.pools[pool], b.pools[pool]) })
		}
		hub.Cut("a", "b", true)
		for pool, r := range a.pools {
			testkit.Eventually(t, func() string {
				if peers, _ := r.Peers(); len(peers) == 1 && peers[0].State != "up" {
					return ""
				}
				return "pool " + pool + " still reaches the cut replica"
			})
		}
		hub.Cut("a", "b", false)
		for pool := range a.pools {
			testkit.Eventually(t, func() string { return clustertest.Joined(a.pools[pool], b.pools[pool]) })
		}
	})
}

// sink counts deliveries.
type sink struct{ frames, lists int }

func (s *sink) Members([]cluster.Member) { s.lists++ }
func (s *sink) Link(string, bool)        {}
func (s *sink) Receive(string, []byte)   { s.frames++ }

// TestNoDeliveryAfterClose: a closed part gets nothing, and its pool's name is free again.
func TestNoDeliveryAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := clustertest.NewHub()
		a, b := start(t, hub, "a"), start(t, hub, "b")
		defer a.stop(t)
		defer b.stop(t)
		got, to, from := &sink{}, a.bus.Part("one"), b.bus.Part("one")
		for _, err := range []error{to.Open(t.Context(), got), from.Open(t.Context(), &sink{})} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := a.bus.Part("one").Open(t.Context(), &sink{}); err == nil {
			t.Error("a pool could be opened twice")
		}
		time.Sleep(2 * time.Second)
		from.Send(cluster.Envelope{Frame: []byte("frame")})
		synctest.Wait()
		if got.frames != 1 || got.lists == 0 {
			t.Fatalf("open part got %d frames and %d lists, want 1 frame and some lists", got.frames, got.lists)
		}
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
		frames, lists := got.frames, got.lists
		from.Send(cluster.Envelope{Frame: []byte("frame")})
		time.Sleep(2 * time.Second)
		if got.frames != frames || got.lists != lists {
			t.Errorf("closed part got %d frames and %d lists", got.frames-frames, got.lists-lists)
		}
		again := a.bus.Part("one")
		if err := again.Open(context.Background(), &sink{}); err != nil {
			t.Errorf("pool cannot be opened again: %v", err)
		}
		_ = again.Close()
		_ = from.Close()
	})
}
