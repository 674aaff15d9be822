package events

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer"
)

// still returns a manager of n endpoints with an open stream each that nothing
// comes from.
func still(n int) *Manager {
	m := &Manager{opt: Options{Now: time.Now, Grace: time.Second}}
	view := make([][]*subscriber, n)
	for i := range view {
		s := &subscriber{m: m}
		s.view.heardAt.Store(1)
		view[i] = []*subscriber{s}
	}
	m.view.Store(&view)
	return m
}

func TestState(t *testing.T) {
	m := still(2)
	s := (*m.view.Load())[1][0]
	for _, c := range []struct {
		state State
		down  time.Duration // how long ago the stream broke; 0: it did not
		want  State
	}{
		{Exact, 0, Exact},
		{CatchingUp, 0, CatchingUp},
		{Approximate, 0, Approximate},
		{Approximate, time.Millisecond, CatchingUp},
		{Approximate, 2 * time.Second, Approximate},
	} {
		s.view.state.Store(uint32(c.state))
		s.view.downAt.Store(0)
		if c.down > 0 {
			s.view.downAt.Store(time.Now().Add(-c.down).UnixNano())
		}
		if got, k := m.State(1), m.Knowledge(1); got != c.want || k.State != c.want {
			t.Errorf("%v, down for %v: %v, of Knowledge %v; want %v", c.state, c.down, got, k.State, c.want)
		}
	}
	if m.State(0) != Exact || m.State(2) != Approximate {
		t.Errorf("another endpoint is %v, one without streams %v", m.State(0), m.State(2))
	}
}

// BenchmarkKnowledge asks for what is known of 100 endpoints.
func BenchmarkKnowledge(b *testing.B) {
	m := still(100)
	b.Run("state", func(b *testing.B) {
		for b.Loop() {
			for id := range indexer.EndpointID(100) {
				if m.State(id) != Exact {
					b.Fatal(id)
				}
			}
		}
	})
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			for id := range indexer.EndpointID(100) {
				if m.Knowledge(id).State != Exact {
					b.Fatal(id)
				}
			}
		}
	})
}
