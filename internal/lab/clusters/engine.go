package clusters

import (
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// engine prefills prompts one after the other and decodes at the same time.
type engine struct {
	free     float64 // when its queue is empty
	requests int64   // in flight
	waiting  int64
	queued   int64 // uncached tokens of waiting requests
	context  int64 // tokens of decoding requests
	held     []int // sessions in its cache, most recent last
	room     int   // sessions that fit in its cache
	down     bool
}

// sessionsHeld is how many sessions of usual prompt length fit in an engine's memory.
const sessionsHeld = 160

// hold records that the session is now the most recent one in the cache.
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

// load returns the load as the picker's accounts have it.
func (e *engine) load() endpoint.Load {
	return endpoint.Load{Requests: e.requests, Waiting: e.waiting, Prefill: e.queued, Context: e.context}
}

// wait returns the seconds until the queue is empty.
func (e *engine) wait(now float64) float64 { return max(e.free-now, 0) }

// begin queues a prefill and returns the times of the first token and of the end of the answer.
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

// shared is the fraction by which each running answer slows down a prefill.
const shared = .002

// started moves a request from waiting to decoding. ended removes it.
func (e *engine) started(w endpoint.Work) {
	e.waiting--
	e.queued -= int64(w.New)
	e.context += int64(w.Input)
}

func (e *engine) ended(w endpoint.Work) {
	e.requests--
	e.context -= int64(w.Input)
}
