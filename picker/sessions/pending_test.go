package sessions

import (
	"fmt"
	"sync"
	"testing"
)

// TestComing: waiters are woken when the session is bound, in any order of events. There is no wait
// without other replicas, and the number of awaited sessions is limited.
func TestComing(t *testing.T) {
	s, a := New(1<<15), KeyOf("a")
	if bound, _ := s.WaitBinding(a); bound != nil {
		t.Error("WaitBinding() != nil without other replicas")
	}
	s.OnBind(func(Binding) {})
	first, endFirst := s.WaitBinding(a)
	second, endSecond := s.WaitBinding(a)
	s.Merge(Binding{KeyOf("b"), 1, t0})
	select {
	case <-first:
		t.Error("waiter was woken for another session")
	default:
	}
	endFirst()
	s.Merge(Binding{a, 1, t0})
	<-second
	endSecond()
	if bound, _ := s.WaitBinding(a); bound != nil {
		t.Error("WaitBinding() != nil for a known session")
	}
	var ends []func()
	for i := range 2 * maxComing {
		if _, end := s.WaitBinding(KeyOf(fmt.Sprint("x", i))); end != nil {
			ends = append(ends, end)
		}
	}
	if len(ends) != maxComing {
		t.Errorf("%d sessions awaited", len(ends))
	}
	for _, end := range ends {
		end()
	}
	if n := s.awaited.Load(); n != 0 || len(s.comings.keys) != 0 {
		t.Errorf("%d sessions still awaited", n)
	}
	var all sync.WaitGroup
	for i := range 1000 {
		k := KeyOf(fmt.Sprint("y", i))
		all.Go(func() { s.Merge(Binding{k, 1, t0}) })
		all.Go(func() {
			if bound, end := s.WaitBinding(k); bound != nil {
				<-bound
				end()
			}
		})
	}
	all.Wait()
	if n := s.awaited.Load(); n != 0 || len(s.comings.keys) != 0 {
		t.Errorf("%d sessions still awaited", n)
	}
}
