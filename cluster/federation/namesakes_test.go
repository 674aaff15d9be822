package federation

import (
	"slices"
	"testing"
	"time"
)

// TestNamesakes: two groups with one name that are heard for two leases count as several, whether
// they answer or ask. A group that replaces another does not, and neither do replicas that find
// their group in that time, replayed messages, or versions without a print.
func TestNamesakes(t *testing.T) {
	const minute = time.Minute
	for _, c := range []struct {
		what  string
		print func(replica string, after time.Duration) uint64
		want  bool
	}{
		{"one group", func(string, time.Duration) uint64 { return 1 }, false},
		{"two of them", func(r string, _ time.Duration) uint64 { return map[string]uint64{"a-0": 1, "a-1": 2}[r] }, true},
		{"one does not tell", func(r string, _ time.Duration) uint64 { return map[string]uint64{"a-0": 1}[r] }, false},
		{"one after the other", func(_ string, d time.Duration) uint64 { return 1 + uint64(d/(minute/2)) }, false},
		{"a replica finds its group", func(r string, d time.Duration) uint64 {
			if r == "a-1" && d < simLease {
				return 2
			}
			return 1
		}, false},
	} {
		// Both replicas of a ask b.
		all := []string{"*/*"}
		r := newPair(t, nil, func(_ string, o *Options) {
			if o.Self == "a" {
				o.Peers = []PeerOptions{{Name: "b", Targets: []string{"b-0"}, Export: all, Accept: all}}
			}
		})
		began, seen := r.now, false
		r.run(minute, func() {
			for name, core := range r.a {
				core.SetPrint(c.print(name, r.now.Sub(began)))
			}
			seen = seen || r.b.View(r.now).Clusters[0].Several
		})
		if seen != c.want {
			t.Errorf("%s: several = %v, want %v", c.what, seen, c.want)
		}
		if !c.want {
			continue
		}
		for _, core := range r.a {
			core.SetPrint(1)
		}
		r.run(presentFor*simLease+simLease, nil)
		if r.b.View(r.now).Clusters[0].Several {
			t.Errorf("%s: several is true after the groups merged", c.what)
		}
	}
}

// TestNamesakesAnswer: over a transport on which any replica of a name may answer, groups are
// distinguished by their answers.
func TestNamesakesAnswer(t *testing.T) {
	r := newPair(t, nil, func(_ string, o *Options) {
		if o.Self == "b" {
			o.Peers[0].Targets = []string{"any"}
		}
	})
	r.a["a-0"].SetPrint(1)
	r.a["a-1"].SetPrint(2)
	turn := 0
	for end := r.now.Add(time.Minute); r.now.Before(end); {
		r.now = r.now.Add(50 * time.Millisecond)
		for _, m := range r.b.Tick(r.now, nil) {
			turn++
			for _, back := range r.a[[]string{"a-0", "a-1"}[turn/3%2]].Receive("b", "link", m.Frame, r.now, nil) {
				r.b.Receive("a", "any", back.Frame, r.now, nil)
			}
		}
	}
	if v := r.b.View(r.now).Clusters[0]; !v.Several {
		t.Errorf("two groups answer in turn, but several is false: %+v", v)
	}
}

// TestServed: a cluster reports a pool that it serves and does not export as such, only to clusters
// that may see it. A missing export of a cluster that never reported its served pools has no
// meaning.
func TestServed(t *testing.T) {
	r := newSkewedPair(t, 0, nil, func(name string, o *Options) {
		if name != "b-0" {
			o.Peers[0].Export = []string{"ns/*"}
		}
	})
	heard := func() *Cluster {
		r.run(5*time.Second, nil)
		return r.b.View(r.now).Clusters[0]
	}
	if c := heard(); c.State != Live || c.ServedKnown {
		t.Fatalf("before SetServed: state %v, served known %t, want live and not known", c.State, c.ServedKnown)
	}
	for _, c := range r.a {
		c.SetServed([]PoolKey{{"ns", "p"}, {"hidden", "q"}})
	}
	if c := heard(); !c.ServedKnown || !slices.Equal(c.Served, []PoolKey{{"ns", "p"}}) || len(c.Pools) != 0 {
		t.Errorf("served known %t, served %v, pools %d, want only ns/p and no pool", c.ServedKnown, c.Served, len(c.Pools))
	}
}

// TestPrintOfBefore: messages of versions without a print can be decoded.
func TestPrintOfBefore(t *testing.T) {
	for name, m := range messages() {
		if name != "ask" && name != "say" {
			continue
		}
		if s, ok := m.(*say); ok {
			s.servedKnown = false // later than print
		}
		whole := m.append(nil)
		got, err := decodeMessage(whole[:len(whole)-8])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		switch v := got.(type) {
		case *ask:
			if v.print != 0 || len(v.wants) != 1 {
				t.Errorf("%+v", v)
			}
		case *say:
			if v.print != 0 || len(v.heard) != 1 {
				t.Errorf("%+v", v)
			}
		}
		if _, err := decodeMessage(whole[:len(whole)-3]); err == nil {
			t.Errorf("%s: truncated print was accepted", name)
		}
	}
}
