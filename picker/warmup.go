package picker

import (
	"time"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// WarmUps is who sends prompts to endpoints to which nobody sent them. Its functions are
// called by many goroutines and do not block; the zero value sends nothing.
type WarmUps struct {
	// Takes reports whether one more may be sent, and r is a request that can be sent.
	Takes func(r *request.Request) bool
	// Send sends it, or reports false. Of w.Request it keeps nothing. When the warm-up is
	// over, ended is called once, on any goroutine, with the status of the engine's answer, 0
	// when there was none.
	Send func(w *WarmUp, ended func(at time.Time, status int)) bool
}

// WarmUp is a prompt to be computed at an endpoint.
type WarmUp struct {
	Request  *request.Request // that brought it
	Decision *request.Decision
	Endpoint *endpoint.Endpoint
	Work     endpoint.Work
}

func (s *Scheduler) mayWarmUp(r *request.Request) bool {
	return s.opts.WarmUps.Takes != nil && s.opts.WarmUps.Takes(r)
}

// warmUp sends the prompt to whom a scorer asked for as well. It is in the book like any
// other request, and counts as cached there from now on: so the next decision, at this
// replica or another one, neither takes that endpoint for idle nor asks for the same again.
func (s *Scheduler) warmUp(c *cycle.Cycle, f *flight) {
	at := c.WarmingUp()
	if at < 0 || s.opts.WarmUps.Send == nil {
		return
	}
	w := WarmUp{Request: c.Request, Decision: &f.Decision, Endpoint: c.All(at).Endpoint, Work: c.WorkAt(at)}
	under := &warming{s: s, request: lasting(c.Request), held: c.MatchAt(at)}
	s.opts.Pool.LoadTracker().Open(&under.ticket, w.Endpoint, w.Work, c.Now)
	if !s.opts.WarmUps.Send(&w, under.ended) {
		under.ticket.Release()
		return
	}
	if s.opts.Matcher != nil {
		s.opts.Matcher.Chosen(c.Request, w.Endpoint)
	}
	s.records.warmed(f.record, w.Endpoint, w.Work)
}

// warming is a warm-up under way.
type warming struct {
	s       *Scheduler
	ticket  endpoint.Ticket
	request request.Request
	held    cycle.PrefixMatch
}

// lasting returns what of a request may be kept when it has ended.
func lasting(r *request.Request) request.Request {
	own := *r
	own.Drop()
	own.Headers, own.Waits, own.Leaves, own.Evict = nil, nil, nil, nil
	return own
}

// ended takes it out of the book. It teaches nothing: neither the endpoint's health nor its
// times are judged by it.
func (w *warming) ended(at time.Time, status int) {
	ok := status >= 200 && status < 300
	if ok {
		w.ticket.FirstToken(at)
	}
	w.ticket.Release()
	if m := w.s.opts.Matcher; m != nil && !ok { // what was to be there is not
		m.Finished(&w.request, w.ticket.Endpoint(), w.held, request.Outcome{At: at, Status: status})
	}
}
