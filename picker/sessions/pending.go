package sessions

import "sync"

// maxComing is the maximum number of sessions whose binding is awaited.
const maxComing = 1024

// comings are the awaited sessions.
type comings struct {
	mu   sync.Mutex
	keys map[Key]*coming
}

type coming struct {
	bound chan struct{}
	n     int // number of waiters
}

// WaitBinding returns a channel that is closed when an unknown session is bound, and a function
// that ends the wait. It returns nil if the session is known, if no other replica could bind it, or
// if too many are awaited.
func (s *Table) WaitBinding(k Key) (bound <-chan struct{}, end func()) {
	if _, known := s.Lookup(k); k == 0 || known || s.hook.Load() == nil {
		return nil, nil
	}
	w := &s.comings
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.keys[k]
	if c == nil {
		if len(w.keys) >= maxComing {
			return nil, nil
		}
		if w.keys == nil {
			w.keys = map[Key]*coming{}
		}
		c = &coming{bound: make(chan struct{})}
		w.keys[k] = c
		s.awaited.Add(1)
	}
	if _, known := s.Lookup(k); known { // bound before the wait was registered
		if c.n == 0 {
			s.forget(k)
		}
		return nil, nil
	}
	c.n++
	return c.bound, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if c.n--; c.n == 0 && w.keys[k] == c {
			s.forget(k)
		}
	}
}

// forget ends the wait for a session. The caller holds comings.mu.
func (s *Table) forget(k Key) {
	delete(s.comings.keys, k)
	s.awaited.Add(-1)
}

// came wakes the waiters of a session.
func (s *Table) came(k Key) {
	if s.awaited.Load() == 0 {
		return
	}
	s.comings.mu.Lock()
	defer s.comings.mu.Unlock()
	if c := s.comings.keys[k]; c != nil {
		close(c.bound)
		s.forget(k)
	}
}
