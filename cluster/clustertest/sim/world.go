package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// Plan configures a World. With zero values nothing happens: no faults, and only batches emitted by
// hand.
type Plan struct {
	Seed    uint64
	Members int
	Sources int
	Share   group.Share
	Every   time.Duration // mean time between batches of a source; 0 disables them
	Ring    int           // batches available for an engine's replay; 0 means all
	Loss    float64       // fraction of live batches that a subscriber misses
	Net     Conditions
	Skew    bool // clocks differ in offset and speed
	NewIDs  bool // a restarted member has a new ID
	Fail    float64
	Options group.Options // Self and Share are set by New
	Gauges  time.Duration
	Name    string        // of sources, with a verb for the number; "" means e1, e2, …
	Pages   int           // additional pages per snapshot
	Work    time.Duration // maximum time of a step of making or loading a snapshot
	// Zones is the number of zones, assigned round robin; 0: none.
	Zones int
	// PreviousRelease members, by number, do not support relays.
	PreviousRelease map[int]bool
	// Version, if set, returns the log version of a member's nth process. By default all have the
	// latest.
	Version func(member, process int) uint64
	// Frame, if set, may modify or drop a frame.
	Frame func(from, to int, frame []byte) []byte
}

// Stats count events in a World.
type Stats struct {
	Batches, Missed, RingWraps, Injected int
	Hints, Frames, Bytes, Events         int
	Kills, Partitions, Restarts          int
	HeldPeak                             int
	Snapshots, Stages, Discarded         int
	Short, Unsure                        int           // payloads that depend on others, and those whose dependency was unknown
	Converged                            time.Duration // time after the last fault
	Relayed, RelayMissed                 uint64        // frames relayed, and relayed frames that were missed
	Watched, Behind                      int           // checks of states reported as exact, and those that were not the latest
	Oldest                               time.Duration // the largest age among these
}

// zone returns the zone of the nth member or source.
func (p *Plan) zone(n int) string {
	if p.Zones == 0 {
		return ""
	}
	return "z" + strconv.Itoa(n%p.Zones)
}

func (p *Plan) version(m *member) uint64 {
	if p.Version == nil {
		return shortSince
	}
	return p.Version(m.i, m.gen)
}

// World is a group of members, engines and a network in virtual time.
type World struct {
	Stats    Stats
	Net      *Net
	plan     Plan
	rng      *rand.Rand
	now      time.Duration
	queue    queue
	members  []*member
	engines  []*engine
	bySource map[string]*engine
	names    []string
	zones    map[string]string  // of sources
	cut      map[[2]string]bool // members disconnected from an engine
	quiet    bool               // no automatic batches
	healed   bool               // subscriptions have no losses any more
	failures []string
}

// New builds a World. No member is running.
func New(p Plan) *World {
	rng := rand.New(rand.NewPCG(p.Seed, 0x6772617065))
	if p.Ring == 0 {
		p.Ring = 1 << 30
	}
	w := &World{plan: p, rng: rng, Net: newNet(rng, p.Members, p.Net), bySource: map[string]*engine{}, zones: map[string]string{}, cut: map[[2]string]bool{}}
	for i := range p.Members {
		w.members = append(w.members, w.newMember(i))
	}
	for i := range p.Sources {
		every := p.Every
		if every > 0 {
			every = w.between(every/2, 3*every)
		}
		e := w.newEngine(fmt.Sprintf(cmp.Or(p.Name, "e%d"), i+1), every, p.Ring, p.Loss)
		w.engines = append(w.engines, e)
		w.bySource[e.name] = e
		w.names = append(w.names, e.name)
		if p.Zones > 0 {
			w.zones[e.name] = p.zone(i)
		}
	}
	return w
}

// Now returns the virtual time.
func (w *World) Now() time.Duration { return w.now }

// Failures returns the violated invariants.
func (w *World) Failures() []string { return w.failures }

func (w *World) failf(format string, a ...any) {
	if len(w.failures) < 20 {
		w.failures = append(w.failures, fmt.Sprintf("%v: ", w.now)+fmt.Sprintf(format, a...))
	}
}

// between returns a random duration in [lo, hi).
func (w *World) between(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(w.rng.Int64N(int64(hi-lo)))
}

// after runs fn later.
func (w *World) after(d time.Duration, fn func()) {
	w.queue.push(event{at: w.now + d, fn: fn})
}

// afterFor runs fn later in m's current process, unless that has ended by then.
func (w *World) afterFor(m *member, d time.Duration, fn func()) {
	w.queue.push(event{at: w.now + d, m: m, gen: m.gen, fn: fn})
}

// Run moves time by d.
func (w *World) Run(d time.Duration) {
	end := w.now + d
	for len(w.queue.events) > 0 && w.queue.events[0].at <= end {
		e := w.queue.pop()
		w.now = e.at
		w.Stats.Events++
		if e.m == nil {
			e.fn()
			continue
		}
		w.deliver(e)
	}
	w.now = end
}

// deliver runs an event of a member and its consequences.
func (w *World) deliver(e event) {
	m := e.m
	if !m.up || m.gen != e.gen {
		return
	}
	if m.paused > w.now {
		e.at = m.paused
		w.queue.push(e)
		return
	}
	m.core.Advance(m.clock())
	e.fn()
	m.settleEvent()
}

// event is a scheduled function.
type event struct {
	at  time.Duration
	n   uint64 // breaks ties in creation order
	m   *member
	gen int
	fn  func()
}

// queue is a heap of events by time.
type queue struct {
	events []event
	n      uint64
}

func (q *queue) less(i, j int) bool {
	a, b := &q.events[i], &q.events[j]
	if a.at != b.at {
		return a.at < b.at
	}
	return a.n < b.n
}

func (q *queue) push(e event) {
	q.n++
	e.n = q.n
	q.events = append(q.events, e)
	i := len(q.events) - 1
	for i > 0 && q.less(i, (i-1)/2) {
		q.events[i], q.events[(i-1)/2] = q.events[(i-1)/2], q.events[i]
		i = (i - 1) / 2
	}
}

func (q *queue) pop() event {
	top := q.events[0]
	last := len(q.events) - 1
	q.events[0] = q.events[last]
	q.events[last] = event{}
	q.events = q.events[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && q.less(c+1, c) {
			c++
		}
		if !q.less(c, i) {
			break
		}
		q.events[i], q.events[c] = q.events[c], q.events[i]
		i = c
	}
	return top
}
