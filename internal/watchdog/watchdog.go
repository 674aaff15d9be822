package watchdog

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/internal/ticks"
)

const (
	tickEvery = 500 * time.Millisecond
	// limit is after how many ticks a loop that has not finished its work is stalled. Health
	// must follow within 3 s.
	limit = 4
	// probeEvery is how many ticks are between two runs of a probe.
	probeEvery = 1
)

// Options build a Watchdog.
type Options struct {
	// Changed is called from Run, on the watchdog's goroutine, when the set of stalled loops
	// changes. It must not block.
	Changed func(stalled []string)
	Log     *slog.Logger // nil discards
}

// Watchdog watches the loops of a process. Safe for concurrent use.
type Watchdog struct {
	o       Options
	tick    atomic.Int64
	stalled atomic.Pointer[[]string]

	mu     sync.Mutex // guards loops; held for a few instructions only
	loops  []*Loop
	probes []probe
}

// Loop is one loop as the watchdog sees it. A nil Loop ignores its methods.
type Loop struct {
	name string
	dog  *Watchdog
	// since is the tick at which the present work began, plus 1; 0: the loop waits.
	since atomic.Int64
	limit int64
}

type probe struct {
	loop *Loop
	fn   func()
	next int64
}

// New returns a Watchdog that does nothing until Run.
func New(o Options) *Watchdog {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	d := &Watchdog{o: o}
	d.stalled.Store(new([]string))
	return d
}

// Loop registers a loop, which waits until its first call of Working.
func (d *Watchdog) Loop(name string) *Loop {
	if d == nil {
		return nil
	}
	l := &Loop{name: name, dog: d, limit: limit}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.loops = append(d.loops, l)
	return l
}

// Probe has Run call fn every half second, on a separate goroutine. fn locks and unlocks the mutex
// of a part. A call that does not return within limit is reported like a stalled loop; 0 is the
// limit of loops.
func (d *Watchdog) Probe(name string, within time.Duration, fn func()) {
	l := d.Loop(name).Within(within)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.probes = append(d.probes, probe{loop: l, fn: fn})
}

// Within sets another limit for work that may take long; 0 changes nothing. Call it before the
// loop runs.
func (l *Loop) Within(limit time.Duration) *Loop {
	if l != nil && limit > 0 {
		l.limit = int64(limit / tickEvery)
	}
	return l
}

// Working reports that the loop begins a piece of work, or makes progress.
func (l *Loop) Working() {
	if l != nil {
		l.since.Store(l.dog.tick.Load() + 1)
	}
}

// Progress reports that the present work advances. It may also be called by the holder of a mutex that
// the loop waits for. It does nothing while the loop waits for work.
func (l *Loop) Progress() {
	if l == nil {
		return
	}
	if since := l.since.Load(); since > 0 {
		l.since.CompareAndSwap(since, l.dog.tick.Load()+1)
	}
}

// Waiting reports that the loop has finished its work and waits for more, however long.
func (l *Loop) Waiting() {
	if l != nil {
		l.since.Store(0)
	}
}

// Stalled returns the names of stalled loops.
func (d *Watchdog) Stalled() []string { return *d.stalled.Load() }

// Run watches until ctx ends. It does not wait for probes that hang.
func (d *Watchdog) Run(ctx context.Context) {
	t := time.NewTimer(ticks.Until(tickEvery))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			d.step()
			t.Reset(ticks.Until(tickEvery))
		}
	}
}

// step is one tick.
func (d *Watchdog) step() {
	now := d.tick.Add(1)
	var stalled []string
	d.mu.Lock()
	for i := range d.probes {
		p := &d.probes[i]
		if now >= p.next && p.loop.since.Load() == 0 {
			p.next = now + probeEvery
			p.loop.since.Store(now) // a whole tick passes before the next one
			go func(l *Loop, fn func()) {
				defer l.Waiting()
				fn()
			}(p.loop, p.fn)
		}
	}
	for _, l := range d.loops {
		if since := l.since.Load(); since > 0 && now-(since-1) > l.limit {
			stalled = append(stalled, l.name)
		}
	}
	d.mu.Unlock()
	was := d.Stalled()
	if slices.Equal(was, stalled) {
		return
	}
	d.stalled.Store(&stalled)
	if d.o.Changed != nil {
		d.o.Changed(stalled)
	}
	if len(stalled) > 0 {
		d.o.Log.Error("loops of this replica have stalled: it is not ready", "stalled", stalled)
	} else {
		d.o.Log.Info("all loops of this replica run again", "stalled_before", was)
	}
}
