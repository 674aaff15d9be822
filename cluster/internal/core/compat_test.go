package core_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/clustertest/sim"
	"github.com/grapevine-epp/grapevine/cluster/internal/core"
	"github.com/grapevine-epp/grapevine/cluster/internal/group"
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

// TestNicksNeedMinor2 mixes members of this version with members of Minor 1, who do
// not know nicks: they are told names, and the others nicks.
func TestNicksNeedMinor2(t *testing.T) {
	nicks := 0
	mixed(t, func(from, to int, frame []byte) []byte {
		nicked := core.Nicked(frame)
		if nicked {
			nicks++
		}
		if nicked && to%2 == 0 {
			t.Errorf("a nick was sent to %d", to)
		}
		if from%2 == 0 {
			frame = bytes.Clone(frame)
			frame[1] = group.MinorNicks - 1
		}
		return frame
	})
	if nicks == 0 {
		t.Error("no nick was sent to anybody")
	}
}

// TestNewerMembers mixes in members of a version to come. Which frames are lost to a kind that
// nobody knows is drawn: of five members at rest every twentieth would be the same one's each time.
func TestNewerMembers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	mixed(t, func(from, _ int, frame []byte) []byte {
		if rng.IntN(20) == 0 {
			return core.Strange(frame)
		}
		if from%2 == 0 {
			return core.ToNewer(frame)
		}
		return frame
	})
}

// TestVersionsOfLogs mixes members that state version 1 of a log with members that
// state 2 and write what only that can read, while processes of one follow those of the
// other: nobody is sent what it cannot read, and all converge.
func TestVersionsOfLogs(t *testing.T) {
	short := 0
	for seed := uint64(1); seed <= 60; seed++ {
		p := sim.Random(seed)
		p.Version = func(member, process int) uint64 { return 1 + uint64(member/2+process)%2 }
		r := sim.RunPlan(p)
		if len(r.Failures) > 0 {
			t.Fatalf("seed %d: %v\n%v", seed, r.Failures, r.Trace)
		}
		short += r.Stats.Short
	}
	if short == 0 {
		t.Error("nobody ever wrote what only version 2 reads")
	}
}

func mixed(t *testing.T, change func(from, to int, frame []byte) []byte) {
	t.Helper()
	for seed := uint64(1); seed <= 60; seed++ {
		p := sim.Random(seed)
		p.Ring, p.Fail, p.Loss = 0, 0, 0
		p.Frame = change
		r := sim.RunPlan(p)
		if len(r.Failures) > 0 {
			t.Fatalf("seed %d: %v\n%v", seed, r.Failures, r.Trace)
		}
	}
}

// TestUnknownStatesAreSeen: a state that a peer has and this member has not is
// ignored, and shows.
func TestUnknownStatesAreSeen(t *testing.T) {
	a := core.New(group.Options{Self: group.Member{ID: "a", Boot: 1}})
	b := core.New(group.Options{Self: group.Member{ID: "b", Boot: 2}})
	g := b.NewGauge("tomorrow", 1, nil)
	a.SetMembers([]group.Member{{ID: "b", Boot: 2}})
	b.SetMembers([]group.Member{{ID: "a", Boot: 1}})
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
