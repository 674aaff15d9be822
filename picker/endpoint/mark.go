package endpoint

import "sync/atomic"

// Mark counts the changes of an endpoint's load, gauges and constants. Decisions keep the values of
// an endpoint and read them again after a change. The marks of a pool are contiguous, so that checking
// all of them costs little. The mark of an endpoint id never changes.
type Mark struct {
	changes    atomic.Uint32
	restricted atomic.Bool
}

// Changes returns a number that differs after each change.
func (m *Mark) Changes() uint32 { return m.changes.Load() }

// Restricted reports whether the endpoint may be excluded from decisions by its health, a full queue
// or failures of some requests. It stays set once any of these has occurred.
func (m *Mark) Restricted() bool { return m.restricted.Load() }

// changed records a change. It follows the change, so that a reader that finds the count unchanged
// has read the latest state.
func (m *Mark) changed() {
	if m != nil {
		m.changes.Add(1)
	}
}

// restrict records that the endpoint may be excluded.
func (m *Mark) restrict() {
	if m != nil {
		m.restricted.Store(true)
	}
}

// markBlock is the number of marks that are allocated together.
const markBlock = 256

// markOf returns the mark of an id. The caller holds p.mu.
func (p *Pool) markOf(id int) *Mark {
	for id >= len(p.marks) {
		block := make([]Mark, markBlock)
		for i := range block {
			p.marks = append(p.marks, &block[i])
		}
	}
	return p.marks[id]
}

// bind connects the state of an endpoint with its mark.
func (m *Mark) bind(c *counters, l *life) {
	if c.mark == nil {
		c.mark, c.cost.mark = m, m
	}
	if l.mark == nil {
		l.mark = m
		l.health.tracker.OnRestrict(&m.restricted)
	}
}
