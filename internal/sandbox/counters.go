package sandbox

import (
	"sync/atomic"
	"time"
)

// Bounds are the upper bounds of the buckets of call times, in seconds.
var Bounds = [...]float64{1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2}

// Stats are the counts of a module.
type Stats struct {
	Calls   uint64             // that ran, without Busy and Paused
	Failed  [NumReasons]uint64 // by reason; OK counts successes
	Seconds float64
	Buckets [len(Bounds)]uint64 // calls of at most that time, not cumulative
	Last    *Failure            // nil: none
	Paused  time.Time           // end of the pause, zero if there is none
}

// Failure is a failed call.
type Failure struct {
	At      time.Time
	Reason  Reason
	Message string
}

// counters count calls. They are safe for concurrent use.
type counters struct {
	reasons [NumReasons]atomic.Uint64
	nanos   atomic.Int64
	buckets [len(Bounds)]atomic.Uint64
	calls   atomic.Uint64
	last    atomic.Pointer[Failure]
}

func (c *counters) count(r Reason) { c.reasons[r].Add(1) }

func (c *counters) took(d time.Duration) {
	c.calls.Add(1)
	c.nanos.Add(int64(d))
	s := d.Seconds()
	for i, bound := range Bounds {
		if s <= bound {
			c.buckets[i].Add(1)
			return
		}
	}
}

func (c *counters) note(now time.Time, reason Reason, err error) {
	f := &Failure{At: now, Reason: reason}
	if err != nil {
		f.Message = firstLine(err)
	}
	c.last.Store(f)
}

// Stats returns the counts since the start, or since the start of the modules that this one
// continues.
func (m *Module) Stats() Stats {
	s := Stats{Calls: m.calls.Load(), Seconds: float64(m.nanos.Load()) / 1e9, Last: m.last.Load()}
	for i := range s.Failed {
		s.Failed[i] = m.reasons[i].Load()
	}
	for i := range s.Buckets {
		s.Buckets[i] = m.buckets[i].Load()
	}
	if until := m.until.Load(); until != 0 {
		s.Paused = time.Unix(0, until)
	}
	return s
}

// Continue adds the counts of a module that this one replaces, so that they never fall.
func (m *Module) Continue(old Stats) {
	m.calls.Add(old.Calls)
	m.nanos.Add(int64(old.Seconds * 1e9))
	for i, n := range old.Failed {
		m.reasons[i].Add(n)
	}
	for i, n := range old.Buckets {
		m.buckets[i].Add(n)
	}
}
