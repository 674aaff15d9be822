package sim

import (
	"fmt"
	"time"
)

// RunLarge runs the plan of a seed in which an empty member loads snapshots of many pages, with
// faults in the middle.
func RunLarge(seed uint64) Result {
	p := Large(seed)
	w := New(p)
	r := Result{Seed: seed}
	late := p.Members - 1
	for i := range late {
		w.Start(i)
	}
	w.Run(2 * time.Second)
	for i := range w.engines {
		w.Emit(i, 60+w.rng.IntN(100)) // more than replays and rings hold
	}
	w.Run(time.Second)
	w.Start(late)
	for range 1 + w.rng.IntN(3) {
		w.await(late, 0.1+0.8*w.rng.Float64())
		r.Trace = append(r.Trace, fmt.Sprintf("%v %s", w.now, w.midFault(late)))
		w.checkMemory(p.memoryLimit())
	}
	w.Heal()
	w.StartAll()
	w.members[late].nameSources(w.names)
	r.Convergence = w.converge()
	r.Exact = w.Exact()
	w.checkStages()
	r.Stats, r.Failures = w.Stats, w.failures
	return r
}

// await runs until a member has added that fraction of a snapshot's pages to a stage, for at most
// two seconds.
func (w *World) await(i int, part float64) {
	m := w.members[i]
	for end := w.now + 2*time.Second; w.now < end && m.up; w.Run(2 * time.Millisecond) {
		if g := m.store.last; g != nil && !g.over && float64(g.next) > part*float64(g.pages) && g.pages > 0 {
			return
		}
	}
}

// midFault injects a random fault while member late loads snapshots.
func (w *World) midFault(late int) string {
	switch w.rng.IntN(6) {
	case 0:
		return "kill " + w.killSender(late)
	case 1:
		e := w.rng.IntN(len(w.engines))
		w.RestartEngine(e)
		return "restart engine of " + w.engines[e].name
	case 2:
		gone := w.rng.IntN(len(w.names))
		w.members[late].nameSources(append(append([]string{}, w.names[:gone]...), w.names[gone+1:]...))
		return "remove " + w.names[gone]
	case 3:
		w.members[late].nameSources(w.names)
		return "name all sources"
	case 4:
		w.Kill(late)
		w.Start(late)
		return "restart the loader"
	default:
		w.Partition(map[int]bool{late: true}, w.rng.IntN(2) == 0)
		return "cut off the loader"
	}
}

// killSender kills a member that is sending pages. It leaves at least one running.
func (w *World) killSender(late int) string {
	running := 0
	for i, m := range w.members {
		if m.up && i != late {
			running++
		}
	}
	for i, m := range w.members {
		if m.up && i != late && running > 1 && m.core.MemoryUse().Snapshots > 0 {
			w.Kill(i)
			return m.name
		}
	}
	return "nobody"
}

// nameSources sets a member's list of sources.
func (m *member) nameSources(names []string) {
	if m.up {
		m.w.afterFor(m, 0, func() { m.log.SetSources(names) })
	}
}
