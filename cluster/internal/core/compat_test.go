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

// TestOlderMembers mixes members of this version with members that speak Minor 0. All converge,
// despite the usual faults. (No losses at the engines: Minor 1 added the messages for those.)
func TestOlderMembers(t *testing.T) {
	mixed(t, func(from, to int, frame []byte) []byte {
		if from%2 == 0 || to%2 == 0 { // an older member is the sender or the receiver
			return core.ToOlder(frame)
		}
		return frame
	})
}

// TestNicksNeedMinor2 mixes members of this version with members of Minor 1, which do not support
// nicks. Minor 1 members are sent names, the others nicks.
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
		t.Error("no nick was sent")
	}
}

// TestNewerMembers mixes in members of a future version. The frames lost to an unknown kind are
// drawn at random. With a fixed rule, among five members at rest every twentieth frame would always
// be the same member's.
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

// TestVersionsOfLogs mixes members with version 1 of a log and members with version 2, which write
// payloads that only version 2 can read. Processes of one version replace those of the other. No
// member receives a payload that it cannot read, and all converge.
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
		t.Error("no payload of version 2 was written")
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

// TestUnknownStatesAreSeen: a state that only a peer has is ignored and shows up in the view.
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
	if n := a.Peers()[0].UnknownStates; n != 1 {
		t.Errorf("%d unknown states", n)
	}
	if n := a.Stats().Refused[group.RefusedState]; n != 1 {
		t.Errorf("%d frames of unknown states: %s", n, fmt.Sprint(a.Stats().Refused))
	}
}
