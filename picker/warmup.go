package picker

import (
	"net/http"
	"time"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// WarmUps sends prompts to additional endpoints to warm their caches. Its functions may be called
// by many goroutines and must not block. The zero value sends nothing.
type WarmUps struct {
	// Takes reports whether one more warm-up may be sent and r is suitable.
	Takes func(r *request.Request) bool
	// Send sends a warm-up, or returns false. It must not keep any part of w.Request. At its end,
	// ended is called once, on any goroutine, with the response status, 0 without a response, or
	// StatusUnsent.
	Send func(w *WarmUp, ended func(at time.Time, status int)) bool
}

// StatusUnsent is the status of warm-ups that were not sent, because their request ended before.
const StatusUnsent = -1

// WarmUp is a prompt to be computed at an endpoint.
type WarmUp struct {
	Request  *request.Request // the client's request
	Decision *request.Decision
	Endpoint *endpoint.Endpoint
	Work     endpoint.Work
	// Go receives true once the client's request has been answered, so that a prompt that crashes
	// engines does not reach a second one, and false if it ends before. It is never closed.
	Go <-chan bool
}

func (s *Scheduler) mayWarmUp(r *request.Request) bool {
	return s.opts.WarmUps.Takes != nil && s.opts.WarmUps.Takes(r)
}

// warmUp sends the prompt to the endpoint that a scorer asked for. The warm-up is tracked like any
// other request and counts as cached there from now on. The next decision, at any replica,
// therefore neither treats the endpoint as idle nor asks for the same warm-up.
func (s *Scheduler) warmUp(c *cycle.Cycle, f *flight) {
	at := c.WarmingUp()
	if at < 0 || s.opts.WarmUps.Send == nil || s.prompts.Failing(f.evidence.prompt, c.Now) {
		return
	}
	w := WarmUp{Request: c.Request, Decision: &f.Decision, Endpoint: c.All(at).Endpoint, Work: c.WorkAt(at)}
	under := &warmUpInFlight{s: s, request: detachedCopy(c.Request), held: c.MatchAt(at), prompt: f.evidence.prompt}
	f.warmUpStart = make(chan bool, 1)
	w.Go = f.warmUpStart
	s.opts.Pool.LoadTracker().Open(&under.ticket, w.Endpoint, w.Work, c.Now)
	if !s.opts.WarmUps.Send(&w, under.ended) {
		under.ticket.Release()
		return
	}
	if s.opts.Matcher != nil {
		s.opts.Matcher.Chosen(c.Request, w.Endpoint)
	}
	s.records.addWarmUp(f.record, w.Endpoint, w.Work)
}

// warmUpInFlight is a warm-up in progress.
type warmUpInFlight struct {
	s       *Scheduler
	ticket  endpoint.Ticket
	request request.Request
	held    cycle.PrefixMatch
	prompt  uint64
}

// detachedCopy returns a copy of the parts of a request that may be kept after its end.
func detachedCopy(r *request.Request) request.Request {
	own := *r
	own.Drop()
	own.Headers, own.Waits, own.Evict = nil, nil, nil
	return own
}

// ended removes the warm-up from the load tracker. It affects neither the endpoint's health nor its
// cost model. A failed one counts against the prompt.
func (w *warmUpInFlight) ended(at time.Time, status int) {
	ok := status >= 200 && status < 300
	if status == 0 || status >= 500 && status != http.StatusServiceUnavailable {
		w.s.prompts.Failed(w.prompt, int(w.ticket.Endpoint().ID), at)
	}
	if ok {
		w.ticket.FirstToken(at)
	}
	w.ticket.Release()
	if m := w.s.opts.Matcher; m != nil && !ok { // the expected blocks are missing
		m.Finished(&w.request, w.ticket.Endpoint(), w.held, request.Outcome{At: at, Status: status})
	}
}
