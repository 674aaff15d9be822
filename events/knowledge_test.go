package events

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

// still returns a manager of n endpoints, each with an open stream without messages.
func still(n int) *Manager {
	m := &Manager{opt: Options{Now: time.Now, Grace: time.Second}}
	view := make([][]*subscriber, n)
	for i := range view {
		s := &subscriber{m: m}
		s.view.lastMessageAt.Store(1)
		s.view.state.Store(uint32(knowledge.Exact))
		view[i] = []*subscriber{s}
	}
	m.view.Store(&view)
	return m
}

func TestState(t *testing.T) {
	m := still(2)
	s := (*m.view.Load())[1][0]
	for _, c := range []struct {
		state knowledge.State
		down  time.Duration // how long ago the stream broke; 0: it did not
		want  knowledge.State
	}{
		{knowledge.Exact, 0, knowledge.Exact},
		{knowledge.Partial, 0, knowledge.Partial},
		{knowledge.CatchingUp, 0, knowledge.CatchingUp},
		{knowledge.Approximate, 0, knowledge.Approximate},
		{knowledge.Approximate, time.Millisecond, knowledge.CatchingUp},
		{knowledge.Approximate, 2 * time.Second, knowledge.Approximate},
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
	if m.State(0) != knowledge.Exact || m.State(2) != knowledge.Approximate {
		t.Errorf("another endpoint is %v, one without streams %v", m.State(0), m.State(2))
	}
}

// BenchmarkKnowledge queries the state of 100 endpoints.
func BenchmarkKnowledge(b *testing.B) {
	m := still(100)
	b.Run("state", func(b *testing.B) {
		for b.Loop() {
			for id := range block.EndpointID(100) {
				if m.State(id) != knowledge.Exact {
					b.Fatal(id)
				}
			}
		}
	})
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			for id := range block.EndpointID(100) {
				if m.Knowledge(id).State != knowledge.Exact {
					b.Fatal(id)
				}
			}
		}
	})
}
