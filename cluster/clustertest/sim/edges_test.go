package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// edge is a world of four members and twelve engines at work, with everybody settled.
func edge(seed uint64, p Plan) *World {
	p.Seed, p.Members, p.Sources, p.Every, p.Gauges = seed, 4, 12, 60*time.Millisecond, 150*time.Millisecond
	p.Net.Delay, p.Share = 500*time.Microsecond, group.SharePartitioned
	w := New(p)
	w.StartAll()
	w.Run(4 * time.Second)
	return w
}

// settled heals the world and says what is wrong with it then.
func (w *World) settled(t *testing.T, what string) {
	t.Helper()
	w.Heal()
	w.StartAll()
	took := w.converge()
	if fs := w.Failures(); len(fs) > 0 {
		t.Errorf("%s:\n%s", what, strings.Join(fs, "\n"))
	}
	if w.Stats.Watched == 0 || w.Stats.Oldest > time.Second {
		t.Errorf("%s: of %d looks at what was said to be exact the oldest was %v behind", what, w.Stats.Watched, w.Stats.Oldest)
	}
	t.Logf("%s: equal after %v; %d looks, %d not the latest, the oldest %v", what, took, w.Stats.Watched, w.Stats.Behind, w.Stats.Oldest)
}

// A member that is stopped for longer than others wait for it, and goes on, is not believed for
// what it claimed, and says nothing exact that is not: from the moment that it goes on.
func TestStopped(t *testing.T) {
	for seed, d := range []time.Duration{5 * time.Second, 30 * time.Second, 120 * time.Second} {
		w := edge(uint64(seed+1), Plan{Ring: 20})
		w.Pause(0, d)
		w.runWatched(d + 3*time.Second)
		w.settled(t, fmt.Sprintf("stopped for %v", d))
	}
}

// A member that starts five times in ten seconds, under its name or under new ones, leaves
// nothing behind: no gauges, no reader that does not read.
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

// A member that was cut off while all engines started anew offers what it knew of their lives
// before; nobody takes it.
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
		w.Kill(2) // and who comes anew asks whom it finds
		w.Net.Heal()
		w.Start(2)
		w.runWatched(2 * time.Second)
		w.settled(t, fmt.Sprintf("seed %d, away while engines restart", seed))
	}
}

// Who does not hear another one, and is heard by it, says nothing exact that is old.
func TestHeardOneWay(t *testing.T) {
	for i := range 4 {
		w := edge(uint64(31+i), Plan{Ring: 20})
		w.Net.Block(i, (i+1)%4, true)
		w.topology()
		w.runWatched(10 * time.Second)
		w.settled(t, fmt.Sprintf("member %d is not heard by the next", i))
	}
}

// Frames over 120 bytes vanish: what is larger comes late or not at all, and nobody says that
// he knows what he lacks.
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
