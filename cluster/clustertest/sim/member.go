package sim

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/core"
	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
)

// member is one replica's process, or a stopped one.
type member struct {
	w    *World
	i    int
	name string
	id   string
	boot uint64
	gen  int // incarnation of the process
	up   bool

	core    *core.Core
	log     *logs.Log
	gauge   *core.Gauge
	feed    *core.Feed
	store   *store
	gauges  *gauges
	hints   *hints
	readers map[string]*reader
	own     map[string]uint64 // its own gauge values
	sent    uint64            // hints

	offset  time.Duration
	rate    float64
	paused  time.Duration
	wakeAt  time.Duration
	inView  map[string]bool
	listed  map[string]coreMember
	touched []string
	last    map[string]logs.Position
}

func (w *World) newMember(i int) *member {
	return &member{w: w, i: i, name: string(rune('a' + i))}
}

// clock is the member's own time.
func (m *member) clock() time.Duration {
	return m.offset + time.Duration(float64(m.w.now)*m.rate)
}

// world converts the member's time to the world's, rounded up.
func (m *member) world(d time.Duration) time.Duration {
	return time.Duration(float64(d-m.offset)/m.rate) + 1
}

// start starts a process with empty state.
func (m *member) start() {
	w := m.w
	m.gen++
	m.up = true
	m.boot = w.rng.Uint64()
	m.id = m.name
	if w.plan.NewIDs {
		m.id = fmt.Sprintf("%s-%04x", m.name, m.boot&0xffff)
	}
	m.offset, m.rate = 0, 1
	if w.plan.Skew {
		m.offset, m.rate = w.between(0, time.Hour), 0.95+0.1*w.rng.Float64()
	}
	opt := w.plan.Options
	opt.Self = group.Member{ID: m.id, Name: m.name, Boot: m.boot, Version: "sim", Zone: w.plan.zone(m.i)}
	opt.Relay = opt.Relay && !w.plan.PreviousRelease[m.i]
	opt.Share = w.plan.Share
	m.core = core.New(opt)
	m.store = &store{m: m, content: map[string]chain{}, tails: map[string]*tails{}, version: w.plan.version(m), fail: w.plan.Fail}
	m.gauges = &gauges{of: map[string]map[string]uint64{}}
	m.hints = &hints{m: m, last: map[uint64]uint64{}}
	m.gauge = m.core.NewGauge("load", 1, m.gauges)
	m.feed = m.core.NewFeed("hints", 1, m.hints)
	m.log = m.core.NewLog("index", m.store.version, m.store, logs.LogOptions{Owned: true, Needs: payloadNeeds})
	m.readers, m.own, m.sent = map[string]*reader{}, map[string]uint64{}, 0
	m.paused, m.wakeAt = 0, -1
	m.inView, m.listed, m.last = map[string]bool{}, map[string]coreMember{}, map[string]logs.Position{}
	w.afterFor(m, 0, func() {
		if w.plan.Zones > 0 {
			m.log.SetZones(w.zones)
		}
		m.log.SetSources(w.names)
	})
	w.afterFor(m, 0, m.setGauges)
}

// setGauges periodically changes a gauge and sends a hint.
func (m *member) setGauges() {
	w := m.w
	if w.plan.Gauges <= 0 {
		return
	}
	if !w.quiet {
		m.Set(fmt.Sprintf("k%d", w.rng.IntN(5)), w.rng.Uint64N(6))
		m.sent++
		m.feed.Send(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, m.boot), m.sent))
	}
	w.afterFor(m, w.between(w.plan.Gauges/2, w.plan.Gauges*3/2), m.setGauges)
}

// Set sets a gauge of the member; 0 removes it.
func (m *member) Set(key string, v uint64) {
	if v == 0 {
		delete(m.own, key)
		_ = m.gauge.Set(key, nil)
		return
	}
	m.own[key] = v
	_ = m.gauge.Set(key, payload(v))
}

// touch marks a source as changed, to be checked after the event.
func (m *member) touch(source string) {
	if n := len(m.touched); n == 0 || m.touched[n-1] != source {
		m.touched = append(m.touched, source)
	}
}

// settleEvent follows every event of a member: it routes frames, schedules the next tick and checks
// invariants.
func (m *member) settleEvent() {
	for _, s := range m.touched {
		m.checkSource(s)
	}
	m.touched = m.touched[:0]
	m.work()
	m.route()
	if at := max(m.world(m.core.Deadline()), m.w.now); m.wakeAt < 0 || at < m.wakeAt {
		m.wakeAt = at
		m.w.afterFor(m, at-m.w.now, func() { m.wake(at) })
	}
}

// work runs the core's jobs while other events happen.
func (m *member) work() {
	for _, j := range m.core.Jobs() {
		wait := func() time.Duration { return m.w.between(0, m.w.plan.Work) }
		m.w.afterFor(m, wait(), func() {
			if j.Begin != nil {
				j.Begin()
			}
			m.w.afterFor(m, wait(), func() {
				j.Run(func() bool { return false })
				m.w.afterFor(m, wait(), j.End)
			})
		})
	}
}

func (m *member) wake(at time.Duration) {
	if at != m.wakeAt {
		return // an earlier tick was scheduled
	}
	m.wakeAt = -1
	m.core.Tick()
}

// route sends the core's frames.
func (m *member) route() {
	for _, e := range m.core.Drain() {
		if e.To == nil {
			for _, to := range m.w.members {
				if to != m && m.inView[to.id] {
					m.send(to, e.Frame)
				}
			}
			continue
		}
		for _, id := range e.To {
			if to := m.w.byID(id); to != nil {
				m.send(to, e.Frame)
			}
		}
	}
}

func (w *World) byID(id string) *member {
	for _, m := range w.members {
		if m.up && m.id == id {
			return m
		}
	}
	return nil
}

func (m *member) send(to *member, frame []byte) {
	w := m.w
	w.Stats.Frames++
	w.Stats.Bytes += len(frame)
	if w.plan.PreviousRelease[m.i] {
		frame = group.KindOf(frame, frame[2])
		frame[1] = group.MinorRelay - 1
	}
	if k := frame[2]; w.plan.PreviousRelease[to.i] && (k == group.KindRelay || k == group.KindRelayed) {
		w.failf("%s sends %s, of a release before relays, a frame of kind %d", m.name, to.name, k)
	}
	if w.plan.Frame != nil {
		if frame = w.plan.Frame(m.i, to.i, frame); frame == nil {
			return
		}
	}
	if !to.up {
		return
	}
	id := m.id
	for _, at := range w.Net.Route(w.now, m.i, to.i, len(frame)) {
		w.afterFor(to, at-w.now, func() { to.core.Receive(id, frame) })
	}
}

// checkSource checks the invariants of a source.
func (m *member) checkSource(name string) {
	pos, was := m.log.Position(name), m.last[name]
	if pos.Inc < was.Inc || (pos.Inc == was.Inc && pos.Next < was.Next) {
		m.w.failf("%s: %s moved back from %+v to %+v", m.name, name, was, pos)
	}
	m.last[name] = pos
	if !pos.Exact() {
		return
	}
	want, ok := m.w.bySource[name].truthAt(pos.Inc, pos.Next)
	if got := m.store.content[name]; !ok || got != want {
		m.w.failf("%s: %s claims to be exact at %+v and holds %+v, not %+v", m.name, name, pos, got, want)
	}
}
