package extproc

import (
	"sync"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// eviction ends a running request in favour of others, by a reply from a goroutine other than the
// stream's. A proxy that has not begun its response sends a 429; otherwise it resets the client's
// stream. Either way the engine's client disconnects.
type eviction struct {
	mu      sync.Mutex // serializes sends: gRPC allows one at a time
	evicted bool       // nothing may be sent any more
	over    bool       // the response has ended normally
	senders sync.WaitGroup
}

// happened reports whether the request was evicted.
func (e *eviction) happened() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.evicted
}

// rule records that the response is complete, so that the request can no longer be evicted.
func (e *eviction) rule() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
}

// wait returns when all sends have finished. The request's permit must have been returned before,
// so that no further eviction begins.
func (e *eviction) wait() { e.senders.Wait() }

// allowEviction lets the picker evict the request while it is running.
func (st *stream) allowEviction() {
	if !st.modes.observe {
		st.request.Evict = st.kit.evict
	}
}

// evict ends the request. It returns immediately; the stream waits for the goroutine that it
// starts.
func (st *stream) evict() {
	e := &st.eviction
	e.senders.Go(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.over || e.evicted {
			return
		}
		e.evicted = true
		// If the stream is broken, the request has ended anyway.
		_ = st.link.SendMsg(immediate(request.Errorf(request.ReasonEvicted, "request evicted by flow control")))
	})
}

// transmit sends a message unless the request was evicted.
func (st *stream) transmit(m any) error {
	e := &st.eviction
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.evicted {
		return errAnswered
	}
	return st.link.SendMsg(m)
}
