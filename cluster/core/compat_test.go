package core_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/core"
	"github.com/grapevine-epp/grapevine/cluster/group"
	"github.com/grapevine-epp/grapevine/cluster/simtest"
)

// TestOlderMembers mixes members of this version with members that speak Minor
// 0: all converge, through the usual faults. (Without losses at the engines:
// telling of those is what Minor 1 added.)
func TestOlderMembers(t *testing.T) {
	mixed(t, func(from, to int, frame []byte) []byte {
		if from%2 == 0 || to%2 == 0 { // an older member wrote it, or reads it
			return core.ToOlder(frame)
		}
		return frame
	})
}

// TestNewerMembers mixes in members of a version to come.
func TestNewerMembers(t *testing.T) {
	n := 0
	mixed(t, func(from, _ int, frame []byte) []byte {
		if n++; n%20 == 0 {
			return core.Strange(frame)
		}
		if from%2 == 0 {
			return core.ToNewer(frame)
		}
		return frame
	})
}

func mixed(t *testing.T, change func(from, to int, frame []byte) []byte) {
	t.Helper()
	for seed := uint64(1); seed <= 60; seed++ {
		p := simtest.Random(seed)
		p.Ring, p.Fail, p.Loss = 0, 0, 0
		p.Frame = change
		r := simtest.RunPlan(p)
		if len(r.Failures) > 0 {
			t.Fatalf("seed %d: %v\n%v", seed, r.Failures, r.Trace)
		}
	}
}

// TestUnknownStatesAreSeen: a state that a peer has and this member has not is
// ignored, and shows.
func TestUnknownStatesAreSeen(t *testing.T) {
	a := core.New(core.Options{Self: core.Member{ID: "a", Boot: 1}})
	b := core.New(core.Options{Self: core.Member{ID: "b", Boot: 2}})
	g := b.NewGauge("tomorrow", 1, nil)
	a.SetMembers([]core.Member{{ID: "b", Boot: 2}})
	b.SetMembers([]core.Member{{ID: "a", Boot: 1}})
	for _, c := range []*core.Core{a, b} {
		c.Advance(time.Second)
		c.SetLink("a", true)
		c.SetLink("b", true)
	}
	if err := g.Set("k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	b.Advance(2 * time.Second)
	b.Tick()
	for _, e := range b.Drain() {
		a.Receive("b", e.Frame)
	}
	if n := a.Peers()[0].Strangers; n != 1 {
		t.Errorf("%d unknown states", n)
	}
	if n := a.Stats().Refused[group.RefusedState]; n != 1 {
		t.Errorf("%d frames of unknown states: %s", n, fmt.Sprint(a.Stats().Refused))
	}
}
