package sim

import (
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
)

// reader is a member's subscription to one engine, a small version of the events layer.
type reader struct {
	m         *member
	e         *engine
	gen       int
	connected bool
	replaying bool
}

// assign starts and stops readers according to the role.
func (m *member) assign(source string, role logs.Role) {
	r := m.readers[source]
	if role == logs.RoleReader && r == nil {
		r = &reader{m: m, e: m.w.bySource[source]}
		m.readers[source] = r
		r.connect()
	}
	if role != logs.RoleReader && r != nil {
		delete(m.readers, source)
		r.gen++
		r.connected = false
		m.w.afterFor(m, 0, func() {
			if m.readers[source] == nil {
				m.log.Reading(source, false)
			}
		})
	}
}

func (r *reader) connect() {
	gen := r.gen
	r.m.w.afterFor(r.m, r.m.w.between(2*time.Millisecond, 50*time.Millisecond), func() {
		if gen != r.gen {
			return
		}
		if r.m.w.cut[[2]string{r.m.name, r.e.name}] {
			r.connect() // retry
			return
		}
		r.connected = true
		r.replay()
	})
}

// disconnect handles the end of an engine's process.
func (r *reader) disconnect() {
	r.gen++
	r.connected, r.replaying = false, false
	m, name := r.m, r.e.name
	m.w.afterFor(m, 0, func() {
		if q := m.readers[name]; q == nil || !q.connected {
			m.log.Reading(name, false)
		}
	})
	r.connect()
}

// live handles one batch from the subscription.
func (r *reader) live(inc, seq, v uint64) {
	if !r.connected {
		return
	}
	if r.append(inc, seq, v) == logs.Gap && !r.replaying {
		r.replay()
	}
}

func (r *reader) append(inc, seq, v uint64) logs.Verdict {
	p := payload(v)
	if r.m.log.Position(r.e.name).Inc == inc {
		p = r.m.store.tailsOf(r.e.name).encode(seq, v, r.m.log.Common())
	}
	return r.m.log.Append(logs.Delta{Source: r.e.name, Inc: inc, First: seq, Last: seq, Payload: p})
}

// replay requests missing batches from the engine. Batches no longer in its ring are marked as
// lost.
func (r *reader) replay() {
	r.replaying = true
	gen := r.gen
	r.m.w.afterFor(r.m, r.m.w.between(time.Millisecond, 6*time.Millisecond), func() {
		if gen != r.gen {
			return
		}
		r.replaying = false
		pos, inc := r.m.log.Position(r.e.name), r.e.inc
		from := pos.Next
		if pos.Inc != inc {
			from = 0
		}
		first, batches := r.e.replay(from)
		if first > from {
			r.m.w.Stats.RingWraps++
		}
		if first > from || pos.Inc != inc {
			r.m.log.MarkLost(r.e.name, inc, first) // also if first is 0: an empty cache is known exactly
		}
		for i, v := range batches {
			r.append(inc, first+uint64(i), v)
		}
		r.m.log.Reading(r.e.name, true) // peers rely on readers that have caught up, not on connected ones
	})
}
