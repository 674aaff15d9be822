package sim

import (
	"fmt"
	"maps"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

type coreMember = group.Member

// Converged returns the differences between running members and the engines, or "".
func (w *World) Converged() string {
	for _, e := range w.engines {
		if d := w.sourceDiffers(e); d != "" {
			return d
		}
	}
	for _, m := range w.members {
		if !m.up {
			continue
		}
		if d := w.gaugesDiffer(m); d != "" {
			return d
		}
		if m.core.Phase() == group.Settling {
			return m.name + " has not settled"
		}
	}
	return ""
}

// sourceDiffers compares the members' state of one source. If one member has lost nothing, no other
// may have losses.
func (w *World) sourceDiffers(e *engine) string {
	var first *member
	readers, running := 0, 0
	for _, m := range w.members {
		if !m.up {
			continue
		}
		running++
		if r := m.readers[e.name]; r != nil && r.connected {
			readers++
		}
		pos := m.log.Position(e.name)
		if pos.Inc == 0 && len(e.batch) == 0 {
			continue
		}
		if pos.Inc != e.inc || pos.Next != uint64(len(e.batch)) {
			return fmt.Sprintf("%s knows %s to %+v, its engine is at %d/%d", m.name, e.name, pos, e.inc, len(e.batch))
		}
		if first == nil {
			first = m
		}
		was := first.log.Position(e.name)
		if pos != was || m.store.content[e.name] != first.store.content[e.name] {
			return fmt.Sprintf("%s and %s differ about %s: %+v and %+v", first.name, m.name, e.name, was, pos)
		}
	}
	want := 1
	if w.plan.Share != group.SharePartitioned {
		want = running
	}
	if readers != want {
		return fmt.Sprintf("%s is read by %d, not %d", e.name, readers, want)
	}
	return ""
}

// gaugesDiffer compares m's view of other members' gauges with their values.
func (w *World) gaugesDiffer(m *member) string {
	living := map[string]bool{}
	for _, o := range w.members {
		if !o.up || o == m {
			continue
		}
		living[o.id] = true
		if got := m.gauges.of[o.id]; !maps.Equal(got, o.own) {
			return fmt.Sprintf("%s believes the gauges of %s to be %v, not %v", m.name, o.name, got, o.own)
		}
	}
	for id := range m.gauges.of {
		if !living[id] {
			return fmt.Sprintf("%s holds gauges of %s, which is gone", m.name, id)
		}
	}
	return ""
}

// Exact reports whether no running member has lost anything.
func (w *World) Exact() bool {
	for _, m := range w.members {
		for _, e := range w.engines {
			if m.up && m.log.Position(e.name).Lost > 0 {
				return false
			}
		}
	}
	return true
}

// checkStages checks that no stage is leaked: each belongs to a load in progress, or to the last
// step of one that ended.
func (w *World) checkStages() {
	was := map[*member]int{}
	for _, m := range w.members {
		if m.up {
			was[m] = m.store.stages
		}
	}
	w.Run(2 * time.Second)
	for m, begun := range was {
		if m.up && m.store.staged > m.store.stages-begun {
			w.failf("%s holds %d contents in the making, of which %d were begun in the last two seconds", m.name, m.store.staged, m.store.stages-begun)
		}
	}
}

// checkMemory checks the limit of a core's memory.
func (w *World) checkMemory(limit int) {
	for _, m := range w.members {
		if !m.up {
			continue
		}
		held := m.core.MemoryUse()
		w.Stats.HeldPeak = max(w.Stats.HeldPeak, held.Total())
		if held.Total() > limit {
			w.failf("%s holds %+v, more than %d bytes", m.name, held, limit)
		}
	}
}

// stale is the maximum staleness during faults of a state reported as exact. It is the lease of a
// dead reader plus the delay of a slow network.
const stale = 2500 * time.Millisecond

// runWatched is Run, and continuously checks the age of states reported as exact, except at paused
// members. A broken connection is detected; a silent one would be detected by the engines' gauges,
// which are not simulated.
func (w *World) runWatched(d time.Duration) {
	const look = 50 * time.Millisecond
	for end := w.now + d; w.now < end; {
		w.Run(min(look, end-w.now))
		for _, m := range w.members {
			if !m.up || m.paused > w.now || m.core.Phase() == group.Settling {
				continue
			}
			for _, v := range m.log.Sources(nil) {
				if v.Knowledge != knowledge.Exact || v.Reason != "" || v.Reader == "" {
					continue // or it reports lag, or has no reader
				}
				age := w.bySource[v.Name].age(v.Position)
				w.Stats.Watched++
				if age > 0 {
					w.Stats.Behind++
				}
				w.Stats.Oldest = max(w.Stats.Oldest, age)
				if age > stale {
					w.failf("%s says that it knows %s exactly and is %v behind; read by %s (here %v), role %v, lag %d", m.name, v.Name, age, v.Reader, v.Reading, v.Role, v.Lag)
				}
			}
		}
	}
}
