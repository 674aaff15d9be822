package lateness

import (
	"slices"
	"time"
)

// window is the time whose runs count.
const window = 5 * time.Second

// Meter measures the lateness of a timer. The zero value is ready to use. Not safe for concurrent use.
type Meter struct {
	began time.Time
	runs  []run // of the window, oldest first
	sorts []time.Duration
}

type run struct {
	at   time.Time
	late time.Duration
}

// Ran records that the timer's function runs at now although it was due at due, and returns the lateness
// that a quarter of the runs within the last five seconds exceeded. It returns 0 until the window is half
// full. One long pause of the process, such as a suspended machine, is one run and does not count for
// more.
func (m *Meter) Ran(now, due time.Time) time.Duration {
	if m.began.IsZero() {
		m.began = now
		return 0
	}
	m.runs = append(m.runs, run{now, max(0, now.Sub(due))})
	old := 0
	for old < len(m.runs) && now.Sub(m.runs[old].at) > window {
		old++
	}
	m.runs = slices.Delete(m.runs, 0, old)
	if now.Sub(m.runs[0].at) < window/2 {
		return 0
	}
	m.sorts = m.sorts[:0]
	for _, r := range m.runs {
		m.sorts = append(m.sorts, r.late)
	}
	slices.Sort(m.sorts)
	return m.sorts[len(m.sorts)*3/4]
}
