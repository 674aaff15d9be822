package endpoint

import (
	"sync"
	"time"
)

// Work is a request's work at one endpoint.
type Work struct {
	Input int // prompt tokens
	New   int // prompt tokens to compute there
}

// Pairs returns the number of (token, earlier token) pairs that attention visits for the new
// tokens.
func (w Work) Pairs() float64 {
	n := float64(w.New)
	return n * (float64(w.Input) - n/2)
}

// Ticket is one entry of the load tracker. Its methods are safe for concurrent use. Calls after
// Release have no effect.
type Ticket struct {
	book *LoadTracker
	ep   *Endpoint
	work Work
	// Helps means that the endpoint's work ends with the first token. Set it before Open.
	Helps bool
	// RemotePrefill means that another endpoint computes the prompt: the request has its permit
	// here but does not wait for this endpoint. Set it before Open.
	RemotePrefill bool
	// Sends is the number of tokens whose blocks are sent to the serving endpoint. OnlySends means
	// that the ticket has no other work. Set them before Open.
	Sends     int
	OnlySends bool

	mu    sync.Mutex
	state ticketState
	out   int64 // generated tokens so far
}

type ticketState uint8

const (
	ticketUnset ticketState = iota
	ticketWaiting
	ticketDecoding
	ticketReleased
)

// Open adds w to the load of ep. t must be new.
func (b *LoadTracker) Open(t *Ticket, ep *Endpoint, w Work, now time.Time) {
	w.Input, w.New = max(w.Input, 0), min(max(w.New, 0), max(w.Input, 0))
	t.book, t.ep, t.work, t.state = b, ep, w, ticketWaiting
	c := &ep.book.local
	c.moving.Add(int64(t.Sends))
	if t.OnlySends {
		b.changed(ep)
		return
	}
	if !t.RemotePrefill {
		if c.waiting.Add(1) == 1 && ep.book.remote.waiting.Load() <= 0 {
			c.lastFirst.Store(now.UnixNano()) // no request waited: the queue begins now
		}
		c.prefill.Add(int64(w.New))
		c.pairs.Add(int64(w.Pairs()))
	}
	c.requests.Add(1)
	c.tokens.Add(int64(w.Input))
	ep.book.dispatched(now, ep.Cost().Idle*PriorCost.Prefill(w))
	b.changed(ep)
}

// Endpoint returns the endpoint of the ticket.
func (t *Ticket) Endpoint() *Endpoint { return t.ep }

// FirstToken moves the request from waiting to decoding, or ends the work of a helper. It reports
// whether this was the first call.
func (t *Ticket) FirstToken(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != ticketWaiting {
		return false
	}
	c := &t.ep.book.local
	if !t.OnlySends {
		c.lastFirst.Store(now.UnixNano())
	}
	if t.Helps {
		t.end(c)
	} else {
		t.state = ticketDecoding
		t.leaveQueue(c)
		c.context.Add(int64(t.work.Input))
	}
	t.book.changed(t.ep)
	return true
}

func (t *Ticket) leaveQueue(c *loadCell) {
	if t.RemotePrefill {
		return
	}
	c.waiting.Add(-1)
	c.prefill.Add(-int64(t.work.New))
	c.pairs.Add(-int64(t.work.Pairs()))
}

// Generated adds n generated tokens. It does not call the change callback: token counts are shared
// with the next other change.
func (t *Ticket) Generated(n int) {
	if n <= 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != ticketDecoding {
		return
	}
	t.out += int64(n)
	t.ep.book.local.tokens.Add(int64(n))
	t.ep.book.local.context.Add(int64(n))
	t.ep.mark.changed()
}

// Release removes the request from the load tracker. It reports whether this was the first call.
func (t *Ticket) Release() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == ticketReleased || t.state == ticketUnset {
		return false
	}
	t.end(&t.ep.book.local)
	t.book.changed(t.ep)
	return true
}

// end removes all of the ticket's load.
func (t *Ticket) end(c *loadCell) {
	c.moving.Add(-int64(t.Sends))
	if t.OnlySends {
		t.state = ticketReleased
		return
	}
	if t.state == ticketWaiting {
		t.leaveQueue(c)
	} else {
		c.context.Add(-int64(t.work.Input) - t.out)
	}
	t.state = ticketReleased
	c.tokens.Add(-int64(t.work.Input) - t.out)
	c.requests.Add(-1)
}
