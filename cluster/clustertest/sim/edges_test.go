package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// edge is a busy world of four members and twelve engines in which all have settled.
func edge(seed uint64, p Plan) *World {
	p.Seed, p.Members, p.Sources, p.Every, p.Gauges = seed, 4, 12, 60*time.Millisecond, 150*time.Millisecond
	p.Net.Delay, p.Share = 500*time.Microsecond, group.SharePartitioned
	w := New(p)
	w.StartAll()
	w.Run(4 * time.Second)
	return w
}

// settled heals the world and reports remaining problems.
func (w *World) settled(t *testing.T, what string) {
	t.Helper()
	w.Heal()
	w.StartAll()
	took := w.converge()
	if fs := w.Failures(); len(fs) > 0 {
		t.Errorf("%s:\n%s", what, strings.Join(fs, "\n"))
	}
	if w.Stats.Watched == 0 || w.Stats.Oldest > time.Second {
		t.Errorf("%s: in %d checks of exact states the oldest was %v behind", what, w.Stats.Watched, w.Stats.Oldest)
	}
	t.Logf("%s: equal after %v; %d looks, %d not the latest, the oldest %v", what, took, w.Stats.Watched, w.Stats.Behind, w.Stats.Oldest)
}

// After a pause longer than the lease, a member's claims are not relied on, and it reports nothing
// as exact that is outdated, from the moment it resumes.
func TestStopped(t *testing.T) {
	for seed, d := range []time.Duration{5 * time.Second, 30 * time.Second, 120 * time.Second} {
		w := edge(uint64(seed+1), Plan{Ring: 20})
		w.Pause(0, d)
		w.runWatched(d + 3*time.Second)
		w.settled(t, fmt.Sprintf("stopped for %v", d))
	}
}

// A member that starts five times in ten seconds, under one name or several, leaves nothing behind:
// no gauges and no stale reader.
func TestFiveStarts(t *testing.T) {
	for _, newIDs := range []bool{false, true} {
		w := edge(11, Plan{NewIDs: newIDs, Ring: 20})
		for range 5 {
			w.Kill(1)
			w.runWatched(300 * time.Millisecond)
			w.Start(1)
			w.runWatched(1700 * time.Millisecond)
		}
		w.settled(t, fmt.Sprintf("five starts, new IDs %v", newIDs))
	}
}

// A member that was cut off while all engines restarted offers content of old incarnations. No
// member accepts it.
func TestAwayWhileEnginesRestart(t *testing.T) {
	for seed := uint64(21); seed < 26; seed++ {
		w := edge(seed, Plan{Ring: 20})
		w.Partition(map[int]bool{3: true}, false)
		for e := range w.engines {
			w.Cut(3, e, true)
		}
		w.runWatched(3 * time.Second)
		for e := range w.engines {
			w.RestartEngine(e)
		}
		w.runWatched(2 * time.Second)
		w.Kill(2) // and a new member asks any peer
		w.Net.Heal()
		w.Start(2)
		w.runWatched(2 * time.Second)
		w.settled(t, fmt.Sprintf("seed %d, away while engines restart", seed))
	}
}

// A member that receives nothing from a peer, but is received by it, reports nothing outdated as
// exact.
func TestOneWayLink(t *testing.T) {
	for i := range 4 {
		w := edge(uint64(31+i), Plan{Ring: 20})
		w.Net.Block(i, (i+1)%4, true)
		w.topology()
		w.runWatched(10 * time.Second)
		w.settled(t, fmt.Sprintf("member %d is not heard by the next", i))
	}
}

// If frames over 120 bytes are lost, larger data arrives late or never. No member then claims data
// that it lacks.
func TestLargeFramesVanish(t *testing.T) {
	on, lost := false, 0
	w := edge(41, Plan{Ring: 20, Pages: 200, Frame: func(_, _ int, f []byte) []byte {
		if on && len(f) > 120 {
			lost++
			return nil
		}
		return f
	}})
	on = true
	w.Kill(1)
	w.Start(1)
	w.runWatched(8 * time.Second)
	on = false
	w.settled(t, fmt.Sprintf("large frames vanish, %d did", lost))
	if lost == 0 {
		t.Error("no frame was large")
	}
}
