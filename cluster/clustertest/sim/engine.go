package sim

import (
	"encoding/binary"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
)

// engine is one source: the only writer of its log, and the reference.
type engine struct {
	w     *World
	name  string
	inc   uint64
	batch []uint64           // batches of the current incarnation, by sequence number
	wrote []time.Duration    // their times, preceded by the time of its start
	truth map[uint64][]chain // by incarnation: content after n batches
	ring  int                // batches available for replay
	every time.Duration      // mean time between batches
	loss  float64            // fraction of live batches that a subscriber misses
	gen   int                // incremented by restarts, to stop old timers
}

func (w *World) newEngine(name string, every time.Duration, ring int, loss float64) *engine {
	e := &engine{
		w: w, name: name, truth: map[uint64][]chain{},
		ring: ring, every: every, loss: loss,
	}
	e.restart()
	return e
}

// restart starts a new incarnation: empty, from sequence number 0.
func (e *engine) restart() {
	e.inc += 1 + e.w.rng.Uint64N(3)
	e.gen++
	e.batch, e.wrote = e.batch[:0], append(e.wrote[:0], e.w.now)
	e.truth[e.inc] = []chain{{}}
	for _, m := range e.w.members {
		if r := m.readers[e.name]; m.up && r != nil {
			r.disconnect()
		}
	}
	e.schedule()
}

func (e *engine) schedule() {
	if e.every <= 0 {
		return
	}
	gen := e.gen
	e.w.after(e.w.between(e.every/2, e.every*3/2), func() {
		if gen != e.gen {
			return
		}
		if !e.w.quiet {
			e.emit()
		}
		e.schedule()
	})
}

// emit writes one batch and publishes it to subscribers.
func (e *engine) emit() {
	v := e.w.rng.Uint64()
	seq, inc := uint64(len(e.batch)), e.inc
	e.batch, e.wrote = append(e.batch, v), append(e.wrote, e.w.now)
	t := e.truth[inc]
	e.truth[inc] = append(t, t[len(t)-1].apply(v))
	e.w.Stats.Batches++
	for _, m := range e.w.members {
		r := m.readers[e.name]
		if !m.up || r == nil || !r.connected {
			continue
		}
		if e.loss > 0 && !e.w.healed && e.w.rng.Float64() < e.loss {
			e.w.Stats.Missed++
			continue
		}
		e.w.afterFor(m, e.w.between(100*time.Microsecond, time.Millisecond), func() { r.live(inc, seq, v) })
	}
}

// replay returns the batches in the ring from sequence number from on, and the sequence number of
// the first.
func (e *engine) replay(from uint64) (uint64, []uint64) {
	first := uint64(max(0, len(e.batch)-e.ring))
	first = min(max(first, from), uint64(len(e.batch)))
	return first, e.batch[first:]
}

func payload(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

// truthAt returns the content after the first next batches of an incarnation.
func (e *engine) truthAt(inc, next uint64) (chain, bool) {
	t := e.truth[inc]
	if next >= uint64(len(t)) {
		return chain{}, false
	}
	return t[next], true
}

// age returns how long a position has been outdated.
func (e *engine) age(at logs.Position) time.Duration {
	switch {
	case at.Inc != e.inc:
		return e.w.now - e.wrote[0]
	case at.Next >= uint64(len(e.batch)):
		return 0
	}
	return e.w.now - e.wrote[at.Next+1]
}
