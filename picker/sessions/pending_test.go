package sessions

import (
	"fmt"
	"sync"
	"testing"
)

// TestComing: who waits for a session is told when it is bound, whatever comes first; nobody
// waits where no other replica could tell, and no more than so many are waited for.
func TestComing(t *testing.T) {
	s, a := New(1<<15), KeyOf("a")
	if bound, _ := s.WaitBinding(a); bound != nil {
		t.Error("one waits for a table that nobody else fills")
	}
	s.OnBind(func(Binding) {})
	first, endFirst := s.WaitBinding(a)
	second, endSecond := s.WaitBinding(a)
	s.Merge(Binding{KeyOf("b"), 1, t0})
	select {
	case <-first:
		t.Error("another session is taken for it")
	default:
	}
	endFirst()
	s.Merge(Binding{a, 1, t0})
	<-second
	endSecond()
	if bound, _ := s.WaitBinding(a); bound != nil {
		t.Error("one waits for what is known")
	}
	var ends []func()
	for i := range 2 * maxComing {
		if _, end := s.WaitBinding(KeyOf(fmt.Sprint("x", i))); end != nil {
			ends = append(ends, end)
		}
	}
	if len(ends) != maxComing {
		t.Errorf("%d are waited for", len(ends))
	}
	for _, end := range ends {
		end()
	}
	if n := s.awaited.Load(); n != 0 || len(s.comings.keys) != 0 {
		t.Errorf("%d are still waited for", n)
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
		t.Errorf("%d are still waited for", n)
	}
}
