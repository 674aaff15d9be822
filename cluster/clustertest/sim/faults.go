package sim

import "time"

// Start starts members that are not running.
func (w *World) Start(members ...int) {
	for _, i := range members {
		if m := w.members[i]; !m.up {
			m.start()
		}
	}
	w.topology()
}

// StartAll starts every member that is not running.
func (w *World) StartAll() {
	for i := range w.members {
		w.Start(i)
	}
}

// Kill ends a member's process without notice.
func (w *World) Kill(i int) {
	m := w.members[i]
	if !m.up {
		return
	}
	w.Stats.Kills++
	w.count(m)
	m.up = false
	m.gen++
	w.topology()
}

// count adds the counters of a process that ends.
func (w *World) count(m *member) {
	st := m.core.Stats()
	w.Stats.Relayed += st.Relayed
	w.Stats.RelayMissed += st.RelayMissed
}

// Pause stops a member's process for d: it neither acts nor receives.
func (w *World) Pause(i int, d time.Duration) { w.members[i].paused = w.now + d }

// Drain makes a member announce that it leaves. It stops once its sources are handed over, or after
// limit.
func (w *World) Drain(i int, limit time.Duration) {
	m := w.members[i]
	if !m.up {
		return
	}
	end := w.now + limit
	var poll func()
	poll = func() {
		if m.core.SourcesTransferred() || w.now >= end {
			w.after(0, func() { w.Kill(i) })
			return
		}
		w.afterFor(m, 10*time.Millisecond, poll)
	}
	w.afterFor(m, 0, func() { m.core.Leave(); poll() })
}

// Partition cuts the network between members of side and the others. oneWay drops only frames from
// side.
func (w *World) Partition(side map[int]bool, oneWay bool) {
	w.Stats.Partitions++
	for i := range w.members {
		for j := range w.members {
			if i == j || side[i] == side[j] {
				continue
			}
			if side[i] || !oneWay {
				w.Net.Block(i, j, true)
			}
		}
	}
	w.topology()
}

// Isolate cuts a member off from the other members of its zone only. oneWay drops only its own
// frames.
func (w *World) Isolate(i int, oneWay bool) {
	w.Stats.Partitions++
	for j := range w.members {
		if i == j || w.plan.zone(i) != w.plan.zone(j) {
			continue
		}
		w.Net.Block(i, j, true)
		if !oneWay {
			w.Net.Block(j, i, true)
		}
	}
	w.topology()
}

// Heal ends every network fault, including losses, and ends pauses.
func (w *World) Heal() {
	w.Net.Heal()
	c := w.Net.Base()
	c.Drop, c.Dup, c.Reorder, c.Rate = 0, 0, 0, 0
	w.Net.SetBase(c)
	w.healed = true
	clear(w.cut)
	for _, m := range w.members {
		m.paused = 0
		if m.store != nil {
			m.store.fail = 0
		}
	}
	w.topology()
}

// RestartEngine restarts an engine's process.
func (w *World) RestartEngine(i int) {
	w.Stats.Restarts++
	w.engines[i].restart()
}

// Cut disconnects a member from an engine, or ends that.
func (w *World) Cut(i, engine int, cut bool) {
	m, e := w.members[i], w.engines[engine]
	w.cut[[2]string{m.name, e.name}] = cut
	if r := m.readers[e.name]; cut && m.up && r != nil && r.connected {
		r.disconnect()
	}
}

// Emit makes an engine write n batches.
func (w *World) Emit(i, n int) {
	for range n {
		w.engines[i].emit()
	}
}

// Quiet stops or resumes the automatic activity of engines and members.
func (w *World) Quiet(q bool) { w.quiet = q }

// topology makes all members notice a change of the network or the processes, each after its own
// delay: first connections, then membership.
func (w *World) topology() {
	for _, m := range w.members {
		if !m.up {
			continue
		}
		for _, to := range w.members {
			if to != m {
				w.afterFor(m, w.between(0, 400*time.Millisecond), func() { m.connect(to) })
				w.afterFor(m, w.between(400*time.Millisecond, time.Second), func() { m.connect(to) })
			}
		}
		w.afterFor(m, w.between(5*time.Millisecond, 300*time.Millisecond), func() { m.look(false) })
		w.afterFor(m, w.between(600*time.Millisecond, 1800*time.Millisecond), func() { m.look(true) })
	}
}

// connect updates m's connection to another member.
func (m *member) connect(to *member) {
	if m.inView[to.id] {
		m.core.SetLink(to.id, to.up && m.w.Net.Linked(m.i, to.i))
	}
}

// look updates m's list of members. New members are seen immediately, departed ones only by a late
// look.
func (m *member) look(late bool) {
	w := m.w
	seen := map[string]bool{}
	var list []coreMember
	for _, o := range w.members {
		known := m.inView[o.id]
		reach := o.up && w.reachable(m.i, o.i)
		if o == m || o.id == "" || (!reach && (!known || late)) {
			continue
		}
		seen[o.id] = true
		list = append(list, coreMember{ID: o.id, Name: o.name, Boot: o.boot, Zone: w.plan.zone(o.i)})
		w.afterFor(m, w.between(time.Millisecond, 20*time.Millisecond), func() { m.connect(o) })
	}
	if !late { // a replaced process is still listed
		for id := range m.inView {
			if !seen[id] {
				list = append(list, m.listed[id])
				seen[id] = true
			}
		}
	}
	m.inView, m.listed = seen, map[string]coreMember{}
	for _, c := range list {
		m.listed[c.ID] = c
	}
	m.core.SetMembers(list)
}

// reachable reports whether membership gossip passes between two members, directly or by way of a
// third.
func (w *World) reachable(a, b int) bool {
	if w.Net.Linked(a, b) {
		return true
	}
	for i, m := range w.members {
		if i != a && i != b && m.up && w.Net.Linked(a, i) && w.Net.Linked(i, b) {
			return true
		}
	}
	return false
}
