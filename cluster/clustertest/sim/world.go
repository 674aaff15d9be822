package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// Plan is what a World is made of. Its zero values are quiet: no faults, no
// batches but those emitted by hand.
type Plan struct {
	Seed    uint64
	Members int
	Sources int
	Share   group.Share
	Every   time.Duration // mean time between batches of a source; 0 emits none
	Ring    int           // batches that an engine's replay reaches back; 0 is all
	Loss    float64       // share of live batches that a subscriber misses
	Net     Conditions
	Skew    bool // clocks differ and run at different speeds
	NewIDs  bool // a restarted member has a new ID
	Fail    float64
	Options group.Options // Self and Share are set by New
	Gauges  time.Duration
	Name    string        // of a source, with a verb for its number; "" means e1, e2, …
	Pages   int           // of a snapshot, beside the few that there are anyhow
	Work    time.Duration // each step of making or loading a snapshot takes less
	// Zones is how many zones members and sources are in, in turn; 0: nobody says.
	Zones int
	// Old members, by number, are of a release before relays.
	PreviousRelease map[int]bool
	// Version, if set, is the version of the log that the nth process of a member
	// states; else all state the latest.
	Version func(member, process int) uint64
	// Frame, if set, may change or swallow what from sends to to.
	Frame func(from, to int, frame []byte) []byte
}

// Stats count what happened in a World.
type Stats struct {
	Batches, Missed, RingWraps, Injected int
	Hints, Frames, Bytes, Events         int
	Kills, Partitions, Restarts          int
	HeldPeak                             int
	Snapshots, Stages, Discarded         int
	Short, Unsure                        int           // payloads that build on others; and on such as were not known
	Converged                            time.Duration // after the last fault
	Relayed, RelayMissed                 uint64        // deltas that members passed on; times that one did not come that way
	Watched, Behind                      int           // looks at what is said to be known exactly, and how often it was not the latest
	Oldest                               time.Duration // the oldest of these
}

// zone returns where the nth member or source is.
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
	cut      map[[2]string]bool // members that cannot reach an engine
	quiet    bool               // engines write nothing by themselves
	healed   bool               // subscriptions miss nothing any more
	failures []string
}

// New builds a World. No member is started.
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

// Failures returns what went against an invariant.
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

// afterFor runs fn later in the process that m is now; never, if that is gone
// by then.
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

// deliver runs an event of a member, and what follows from it.
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

// event is something that happens.
type event struct {
	at  time.Duration
	n   uint64 // breaks ties in order of making
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
