package extproc

import (
	"sync"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// eviction ends a request that is served, for others: by an answer from another
// goroutine than the stream's. A proxy that has not begun its answer to the client sends
// a 429; later it resets the client's stream. Either way the engine sees its client leave.
type eviction struct {
	mu      sync.Mutex // over sending: gRPC takes one message at a time
	evicted bool       // nothing may be sent any more
	over    bool       // the answer has ended by itself
	senders sync.WaitGroup
}

// happened reports whether the request was ended.
func (e *eviction) happened() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.evicted
}

// rule notes that the answer is complete: the request cannot be ended any more.
func (e *eviction) rule() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
}

// wait returns when nobody sends any more. The place of the request has been given back,
// so that no further eviction begins.
func (e *eviction) wait() { e.senders.Wait() }

// allowEviction lets the picker end the request while it is served.
func (st *stream) allowEviction() {
	if !st.modes.observe {
		st.request.Evict = st.kit.evict
	}
}

// evict ends the request. It returns at once; the stream waits for what it starts.
func (st *stream) evict() {
	e := &st.eviction
	e.senders.Go(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.over || e.evicted {
			return
		}
		e.evicted = true
		// A stream that is broken has ended anyway.
		_ = st.link.SendMsg(immediate(request.Errorf(request.ReasonEvicted, "request evicted by flow control")))
	})
}

// transmit sends a message, unless the request was ended.
func (st *stream) transmit(m any) error {
	e := &st.eviction
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.evicted {
		return errAnswered
	}
	return st.link.SendMsg(m)
}
