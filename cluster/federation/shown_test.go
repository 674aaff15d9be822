package federation

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// mutual is two clusters, a and b, that ask each other.
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

// deliver delivers frames. A replica's answers use the link of the ask, which is named after the
// asking cluster.
func (r *mutual) deliver(from string, out []Send) {
	for _, m := range out {
		r.deliver(m.Cluster, r.core[m.Cluster].Receive(from, from, m.Frame, r.now, nil))
	}
}

func (r *mutual) told(t *testing.T) ExportAck {
	t.Helper()
	own := r.core["a"].View(r.now).Exports
	if len(own) != 1 || len(own[0].Acks) != 1 {
		t.Fatalf("own exports: %+v", own)
	}
	return own[0].Acks[0]
}

// TestShown: an exporter receives whether the other cluster has an object for its pool.
func TestShown(t *testing.T) {
	r := newMutual(t)
	r.core["a"].SetExports([]Export{somePool}, r.now)
	want := func(shown Shown, reason string) {
		t.Helper()
		r.run(simLease)
		if got := r.told(t); got != (ExportAck{Cluster: "b", State: Live, Shown: shown, ShownReason: reason}) {
			t.Errorf("a received %+v", got)
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

// TestUntold: parts of an export that do not fit in messages are shown with the export while that
// is so.
func TestUntold(t *testing.T) {
	r := newMutual(t)
	for _, c := range []struct {
		groups int
		want   string
	}{{maxGroups, ""}, {maxGroups + 3, "3 of 259 groups of model and role"}, {1, ""}} {
		e := somePool
		e.Ready = nil
		for i := range c.groups {
			e.Ready = append(e.Ready, Ready{Model: fmt.Sprint("m", i), Role: roleDecode, Count: 1})
		}
		r.core["a"].SetExports([]Export{e}, r.now)
		r.run(simLease)
		if got := r.core["a"].View(r.now).Exports[0].Omitted; got != c.want {
			t.Errorf("%d groups: %q, want %q", c.groups, got, c.want)
		}
		if got := len(r.core["b"].View(r.now).Cluster("a").Pools[0].Ready); got != min(c.groups, maxGroups) {
			t.Errorf("%d groups: %d received by the peer", c.groups, got)
		}
	}
}

// TestDrainedByCaller: an export that the caller listed as draining is removed with its list entry.
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

// TestFilterOfOld: a complete filter that receives no changes, or only malformed ones, is not shown
// as complete for longer than a lease. Once it receives changes, it is.
func TestFilterOfOld(t *testing.T) {
	hot, next := filter.NewHot(1_000), block.Key(1<<63)
	r := newPair(t, []Export{somePool}, nil)
	for _, c := range r.a {
		c.SetHot(somePool.Pool, hot)
	}
	note := func() string { return r.cluster().Pools[0].FilterNote }
	change := func() { // the hot set changes continuously
		hot.Touch([]block.Key{next})
		next += 0x9e3779b97f4a7c15 >> 2
	}
	r.run(2*simLease, change)
	if got := note(); got != "" {
		t.Fatalf("while changes arrive: %q", got)
	}
	for _, c := range []struct {
		what, want string
		spoil      func(m Send) bool
	}{
		{"parts are lost", "not brought up to date for", func(m Send) bool { return m.Frame[1] == kindPart }},
		{"parts are garbled", "malformed part", func(m Send) bool {
			if m.Frame[1] == kindPart {
				for i := 2 + 8 + len("\x02ns\x01p"); i < len(m.Frame); i++ { // everything after the pool's name
					m.Frame[i] = 0xff
				}
			}
			return false
		}},
	} {
		r.lost = c.spoil
		r.run(3*simLease, change)
		if got := note(); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", c.what, got)
		}
		r.lost = nil
		r.run(2*simLease, change)
		if got := note(); got != "" {
			t.Errorf("after %s: %q", c.what, got)
		}
	}
}
