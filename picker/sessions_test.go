package picker

import (
	"fmt"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer"
)

func TestSessions(t *testing.T) {
	s := NewSessions(64)
	told := 0
	s.OnBind(func(Binding) { told++ })
	a := KeyOf("a")
	f := func(want indexer.EndpointID, ok bool) {
		t.Helper()
		if id, found := s.Lookup(a); id != want || found != ok {
			t.Errorf("%d %v, want %d %v", id, found, want, ok)
		}
	}
	f(0, false)
	s.Bind(Binding{a, 3, t0})
	f(3, true)
	s.Merge(Binding{a, 4, t0.Add(-time.Second)})
	f(3, true)
	s.Merge(Binding{a, 4, t0.Add(time.Second)})
	f(4, true)
	s.Bind(Binding{0, 4, t0})
	if _, ok := s.Lookup(0); ok || told != 1 {
		t.Errorf("no session: found %v, told %d", ok, told)
	}
}

// TestSessionsBounded holds that the table forgets the oldest and no more than
// it must.
func TestSessionsBounded(t *testing.T) {
	s := NewSessions(1600)
	for i := range 100_000 {
		s.Bind(Binding{KeyOf(fmt.Sprint(i)), 1, t0})
	}
	kept := 0
	for i := range s.shards {
		kept += len(s.shards[i].young) + len(s.shards[i].old)
	}
	if kept > 3200 {
		t.Errorf("%d kept", kept)
	}
	for i := 100_000 - 800; i < 100_000; i++ {
		if _, ok := s.Lookup(KeyOf(fmt.Sprint(i))); !ok {
			t.Fatalf("session %d forgotten", i)
		}
	}
}
