package kube

import (
	"fmt"
	"time"
)

// heldChange is a change of the selector that is not applied yet.
type heldChange struct {
	since    time.Time // zero: no change is on hold
	selector string    // the new one
	now      int       // endpoints of the selector in use
	then     int       // endpoints of the new one
}

// guarded reports whether the change to the next selector is on hold. It is if the change would
// leave less than half of the present endpoints, as with a mistyped selector. The pods of the
// selector in use are still followed, so that endpoints that end or fail are removed. If the new
// selector has enough endpoints, the change is applied.
func (s *Source) guarded() bool {
	if s.o.Guard == 0 || !s.pods.State().Listed {
		return false
	}
	h := heldChange{since: s.held.since, selector: s.next.selector}
	h.now = len(specs(s.pods.Items(), s.pods.ports, s.o.Events).specs)
	h.then = len(specs(s.next.Items(), s.next.ports, s.o.Events).specs)
	log := s.o.Sink.Log.With("pool", s.o.from(), "selector", h.selector, "endpoints_now", h.now, "endpoints_then", h.then)
	switch {
	case 2*h.then >= h.now:
		return false
	case h.since.IsZero():
		h.since = time.Now()
		log.Warn("change of the selector held, it would remove most endpoints", "hold", s.o.Guard)
	case time.Since(h.since) >= s.o.Guard:
		log.Warn("held change of the selector applied")
		return false
	}
	s.holdChange(h)
	return true
}

func (s *Source) holdChange(h heldChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = h
}

// describe describes the change and the rest of its hold time.
func (h *heldChange) describe(guard time.Duration) string {
	left := max(guard-time.Since(h.since), 0).Round(time.Second)
	return fmt.Sprintf("the selector %s has %d endpoints, not %d: the change is held for another %v", h.selector, h.then, h.now, left)
}

// heldEndpoints returns the number of endpoints in use while a change is on hold.
func (s *Source) heldEndpoints() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held.now
}
