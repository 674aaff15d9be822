package clusters

import (
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// engine serves prompts one after the other and answers beside it.
type engine struct {
	free     float64 // when its queue is done
	requests int64   // in flight
	waiting  int64
	queued   int64 // uncached tokens of those that wait
	context  int64 // tokens of those that decode
	held     []int // sessions of which it holds the context, latest last
	room     int   // how many that are at most
	down     bool
}

// sessionsHeld is how many sessions' contexts fit an engine's memory, where prompts are as
// long as usual.
const sessionsHeld = 160

// hold notes that a session's context is here, as the last one.
func (e *engine) hold(session int) {
	for i, s := range e.held {
		if s == session {
			copy(e.held[i:], e.held[i+1:])
			e.held[len(e.held)-1] = session
			return
		}
	}
	if len(e.held) >= e.room {
		copy(e.held, e.held[1:])
		e.held[len(e.held)-1] = session
		return
	}
	e.held = append(e.held, session)
}

func (e *engine) holds(session int) bool {
	for _, s := range e.held {
		if s == session {
			return true
		}
	}
	return false
}

// load is what the picker's book would show.
func (e *engine) load() endpoint.Load {
	return endpoint.Load{Requests: e.requests, Waiting: e.waiting, Prefill: e.queued, Context: e.context}
}

// wait is how long the queue takes at a moment.
func (e *engine) wait(now float64) float64 { return max(e.free-now, 0) }

// begin queues a prefill and returns when its first token comes and the answer's end.
func (e *engine) begin(now float64, w endpoint.Work, answer float64) (first, end float64) {
	c := endpoint.PriorCost
	decoding := float64(e.requests - e.waiting)
	step := c.StepOf(decoding+1, float64(e.context+int64(w.Input)))
	own := c.Base + c.Prefill(w)*(1+shared*decoding)
	e.free = max(e.free, now) + own
	e.requests++
	e.waiting++
	e.queued += int64(w.New)
	return e.free, e.free + answer*step
}

// shared is by how much each answer under way slows a prefill beside it.
const shared = .002

// started moves a request from the queue to the answers, ended takes it out.
func (e *engine) started(w endpoint.Work) {
	e.waiting--
	e.queued -= int64(w.New)
	e.context += int64(w.Input)
}

func (e *engine) ended(w endpoint.Work) {
	e.requests--
	e.context -= int64(w.Input)
}
