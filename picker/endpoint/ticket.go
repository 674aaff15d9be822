package endpoint

import (
	"sync"
	"time"
)

// Work is what a request asks of one endpoint.
type Work struct {
	Input int // prompt tokens
	New   int // of them, those to be computed there
}

// Pairs returns how many (token, earlier token) pairs attention visits for the
// new tokens.
func (w Work) Pairs() float64 {
	n := float64(w.New)
	return n * (float64(w.Input) - n/2)
}

// Ticket is one entry in the book. Its methods are safe for concurrent use;
// those that come after Release do nothing, and Release counts once.
type Ticket struct {
	book *LoadTracker
	ep   *Endpoint
	work Work
	// Helps says that the endpoint's work is done when the first token is
	// there. It is set before Open.
	Helps bool
	// RemotePrefill says that another endpoint computes the prompt: the request has its place
	// here, and waits for nothing of this endpoint. It is set before Open.
	RemotePrefill bool
	// Sends is how many tokens' blocks go from the endpoint to the one that answers, and
	// OnlySends that it has no other work on the request. They are set before Open.
	Sends     int
	OnlySends bool

	mu    sync.Mutex
	state ticketState
	out   int64 // generated tokens counted
}

type ticketState uint8

const (
	ticketUnset ticketState = iota
	ticketWaiting
	ticketDecoding
	ticketReleased
)

// Open enters w into the book of ep. t must be new.
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
			c.lastFirst.Store(now.UnixNano()) // nobody's request waited there: the queue begins here
		}
		c.prefill.Add(int64(w.New))
		c.pairs.Add(int64(w.Pairs()))
	}
	c.requests.Add(1)
	c.tokens.Add(int64(w.Input))
	ep.book.dispatched(now, ep.Cost().Idle*PriorCost.Prefill(w))
	b.changed(ep)
}

// Endpoint returns where the ticket was opened.
func (t *Ticket) Endpoint() *Endpoint { return t.ep }

// FirstToken moves the request from waiting to decoding, or ends the work of an
// endpoint that helps. It reports whether this was the first call.
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

// Generated counts n more generated tokens. It does not call the change hook:
// what grows token by token is shared when something else changes.
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
}

// Release takes the request out of the book. It reports whether this was the
// first call.
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

// end takes everything out of the book.
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
