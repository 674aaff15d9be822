package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/clustertest"
)

func newReplica(name string, h *clustertest.Hub, share cluster.Share) *clustertest.Replica {
	self := cluster.NewMember(name, "test")
	opt := cluster.Options{Self: self, Share: share}
	if h != nil {
		opt.Bus = h.Bus(self)
	}
	return clustertest.NewReplica(opt)
}

func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newReplica("a", nil, cluster.ShareAuto)
		a.Start(t, "e1", "e2")
		defer clustertest.Stop(t, a)
		if p, err := a.WaitSettled(t.Context()); p != cluster.Settled || err != nil {
			t.Fatalf("phase %v, %v", p, err)
		}
		if got := a.Sums.Role("e1"); got != cluster.RoleReader {
			t.Errorf("role %v", got)
		}
		if v := a.Append("e1", 0); v != cluster.Applied {
			t.Errorf("append: %v", v)
		}
		if v := a.Append("e1", 2); v != cluster.Gap {
			t.Errorf("append with a gap: %v", v)
		}
		if v := a.Append("e1", 1); v != cluster.Applied {
			t.Errorf("append that fills it: %v", v)
		}
		if got := a.Index.Position("e1"); got != (cluster.Position{Inc: 1, Next: 3}) || a.Sums.Get("e1") != 6 {
			t.Errorf("position %+v, sum %d", got, a.Sums.Get("e1"))
		}
		if h := a.Status().Health; h.State != "off" || !h.OK {
			t.Errorf("health %+v", h)
		}
		if err := a.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestThreeShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := clustertest.NewHub()
		a, b, c := newReplica("a", h, cluster.SharePartitioned), newReplica("b", h, cluster.SharePartitioned), newReplica("c", h, cluster.SharePartitioned)
		all := []*clustertest.Replica{a, b, c}
		sources := []string{"e1", "e2", "e3", "e4", "e5", "e6"}
		for _, r := range all {
			r.Start(t, sources...)
		}
		defer clustertest.Stop(t, all...)
		time.Sleep(time.Second)
		for _, s := range sources {
			readers := 0
			for _, r := range all {
				if r.Sums.Role(s) == cluster.RoleReader {
					readers++
					r.Index.Reading(s, true)
					for seq := range uint64(10) {
						r.Append(s, seq)
					}
				}
			}
			if readers != 1 {
				t.Errorf("%s has %d readers", s, readers)
			}
		}
		if err := a.Load.Set("e1", []byte("7")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		for _, r := range all {
			for _, s := range sources {
				if got := r.Sums.Get(s); got != 55 {
					t.Errorf("%s: sum of %s is %d", r.Self().Name, s, got)
				}
			}
		}
		if got := b.Loads.Get(a.Self().ID, "e1"); got != "7" {
			t.Errorf("b has %q", got)
		}
		time.Sleep(time.Second)
		for _, r := range all {
			if st := r.Status(); !st.Health.OK || st.Phase != "settled" || st.Logs[0].Exact != 6 {
				t.Errorf("%s: %+v %+v", r.Self().Name, st.Health, st.Logs)
			}
		}
	})
}

func TestDeathDropsGauges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := clustertest.NewHub()
		a, b := newReplica("a", h, cluster.ShareAuto), newReplica("b", h, cluster.ShareAuto)
		a.Start(t, "e1")
		b.Start(t, "e1")
		defer clustertest.Stop(t, a, b)
		_ = a.Load.Set("e1", []byte("7"))
		time.Sleep(time.Second)
		if got := b.Loads.Get(a.Self().ID, "e1"); got != "7" {
			t.Fatalf("b has %q", got)
		}
		h.Cut("a", "b", true)
		time.Sleep(time.Second)
		if got := b.Loads.Get(a.Self().ID, "e1"); got != "" {
			t.Errorf("b still has %q", got)
		}
		time.Sleep(2 * time.Second)
		if st := b.Status().Health; st.State != "partitioned" || st.OK {
			t.Errorf("health %+v", st)
		}
		h.Cut("a", "b", false)
		time.Sleep(500 * time.Millisecond)
		if got := b.Loads.Get(a.Self().ID, "e1"); got != "7" {
			t.Errorf("b has %q after the partition healed", got)
		}
	})
}

// TestLost: a member that vanished without leaving is reported for ten minutes, unless its name
// returns. A member that left is not.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := clustertest.NewHub()
		a, b, c := newReplica("a", h, cluster.ShareAuto), newReplica("b", h, cluster.ShareAuto), newReplica("c", h, cluster.ShareAuto)
		for _, r := range []*clustertest.Replica{a, b, c} {
			r.Start(t, "e1")
		}
		defer func() { clustertest.Stop(t, a) }()
		health := func(state, line string) {
			t.Helper()
			time.Sleep(time.Second)
			if got := a.Status().Health; got.State != state || !strings.Contains(got.Line, line) {
				t.Errorf("health = %+v, want %s: %s", got, state, line)
			}
		}
		health("joined", "2 other members")
		if err := c.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		clustertest.Stop(t, c)
		health("joined", "1 other member")
		clustertest.Stop(t, b)
		health("partitioned", "1 of 1 other members cannot be reached: b (vanished 1s ago without leaving: dead or cut off)")
		b = newReplica("b", h, cluster.ShareAuto)
		b.Start(t, "e1")
		health("joined", "1 other member")
		clustertest.Stop(t, b)
		time.Sleep(9 * time.Minute)
		health("partitioned", "b (")
		time.Sleep(time.Minute)
		health("alone", "")
		if n := len(a.Status().Lost); n != 0 {
			t.Errorf("%d members still lost", n)
		}
	})
}

func TestDrainHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := clustertest.NewHub()
		a, b := newReplica("a", h, cluster.SharePartitioned), newReplica("b", h, cluster.SharePartitioned)
		a.Start(t, "e1")
		b.Start(t, "e1")
		time.Sleep(time.Second)
		owner, heir := a, b
		if b.Sums.Role("e1") == cluster.RoleReader {
			owner, heir = b, a
		}
		owner.Index.Reading("e1", true)
		owner.Append("e1", 0)
		time.Sleep(time.Second)
		if heir.Sums.Role("e1") != cluster.RoleStandby {
			t.Errorf("role of the new owner is %v", heir.Sums.Role("e1"))
		}
		done := make(chan error)
		go func() { done <- owner.Drain(context.Background()) }()
		time.Sleep(500 * time.Millisecond)
		if heir.Sums.Role("e1") != cluster.RoleReader {
			t.Errorf("role of the new owner is %v", heir.Sums.Role("e1"))
		}
		select {
		case err := <-done:
			t.Fatalf("left before the new owner reads: %v", err)
		default:
		}
		heir.Index.Reading("e1", true)
		if err := <-done; err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Millisecond)
		clustertest.Stop(t, owner)
		if n := len(heir.Status().Peers); n != 0 {
			t.Errorf("%d peers left", n)
		}
		clustertest.Stop(t, heir)
	})
}

// TestReplaced: a crashed member is reported until another one replaces it, and is not reported as
// a partition.
func TestReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := clustertest.NewHub()
		var all []*clustertest.Replica
		start := func(name string) *clustertest.Replica {
			r := newReplica(name, h, cluster.ShareAuto)
			r.Start(t, "e1")
			all = append(all, r)
			return r
		}
		a, b, c, d := start("a"), start("b"), start("c"), start("d")
		defer func() { clustertest.Stop(t, all...) }()
		health := func(r *clustertest.Replica, line string) {
			t.Helper()
			time.Sleep(3 * time.Second)
			if got := r.Status().Health; got.State != "joined" || !got.OK || !strings.Contains(got.Line, line) {
				t.Errorf("%s: health = %+v, want joined: %s", r.Self().ID, got, line)
			}
		}
		health(a, "3 other members, all reachable")
		all = []*clustertest.Replica{a, b, c}
		clustertest.Stop(t, d)
		health(a, "2 other members reachable, digests equal; 1 lost 3s ago (dead or cut off): d")
		health(b, "1 lost")
		start("e")
		for _, r := range all {
			health(r, "3 other members, all reachable")
		}
		start("f") // an additional member
		health(a, "4 other members, all reachable")
	})
}

// TestCrashLoop: a replica that keeps crashing and restarting under new names, faster than
// membership removes the old ones, is not reported as a partition.
func TestCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := clustertest.NewHub()
		start := func(name string) *clustertest.Replica {
			r := newReplica(name, h, cluster.ShareAuto)
			r.Start(t, "e1")
			return r
		}
		a, b := start("a"), start("b")
		defer func() { clustertest.Stop(t, a, b) }()
		var dead []*clustertest.Replica
		giveUp := func(n int) {
			clustertest.Stop(t, dead[:n]...)
			dead = dead[n:]
		}
		for i := range 25 {
			name := fmt.Sprintf("c-%02d", i)
			c := start(name)
			time.Sleep(500 * time.Millisecond)
			h.Cut("a", name, true)
			h.Cut("b", name, true)
			dead = append(dead, c)
			time.Sleep(3 * time.Second)
			if len(dead) > 8 {
				giveUp(1)
			}
			for _, r := range []*clustertest.Replica{a, b} {
				if got := r.Status().Health; got.State != "joined" {
					t.Fatalf("after %d crashes health of %s is %+v", i+1, r.Self().ID, got)
				}
			}
		}
		for i := range 25 {
			h.Cut("d", fmt.Sprintf("c-%02d", i), true)
		}
		last := start("d")
		defer func() { clustertest.Stop(t, last) }()
		giveUp(len(dead))
		time.Sleep(3 * time.Second)
		for _, r := range []*clustertest.Replica{a, b, last} {
			if got := r.Status().Health; got.State != "joined" || !strings.HasPrefix(got.Line, "joined: 2 other members, all reachable") {
				t.Errorf("health of %s is %+v", r.Self().ID, got)
			}
		}
	})
}

// Replicas started with the same name share normally, each source has one reader, and all report
// the name.
func TestOneNameTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := clustertest.NewHub()
		var all []*clustertest.Replica
		for _, name := range []string{"a", "a", "b"} {
			all = append(all, newReplica(name, h, cluster.SharePartitioned))
		}
		sources := []string{"e1", "e2", "e3", "e4", "e5", "e6"}
		for _, r := range all {
			r.Start(t, sources...)
		}
		defer clustertest.Stop(t, all...)
		time.Sleep(3 * time.Second)
		for range 10 {
			clustertest.ReadAll(sources, 9, all...)
			time.Sleep(time.Second)
		}
		if why := clustertest.ReadAll(sources, 9, all...); why != "" {
			t.Error(why)
		}
		for _, s := range sources {
			readers := 0
			for _, r := range all {
				if r.Sums.Role(s) == cluster.RoleReader {
					readers++
				}
			}
			if readers != 1 {
				t.Errorf("%s has %d readers", s, readers)
			}
		}
		for _, r := range all {
			if line := r.Status().Health.Line; !strings.Contains(line, "several members are named a") {
				t.Errorf("health line of %s is %q", r.Self().ID, line)
			}
		}
	})
}
