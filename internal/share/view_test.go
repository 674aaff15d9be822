package share

import (
	"testing"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

// A stream that is being opened does not degrade data from other readers. The state of a stream
// without another reader is no better than the state of the data read here.
func TestJoint(t *testing.T) {
	for _, c := range []struct {
		what           string
		read, log      knowledge.State
		direct, backed bool
		want           knowledge.State
	}{
		{"taken over from another reader", knowledge.CatchingUp, knowledge.Exact, false, true, knowledge.Exact},
		{"read by nobody else", knowledge.CatchingUp, knowledge.Exact, false, false, knowledge.CatchingUp},
		{"not connected, read by nobody else", knowledge.Approximate, knowledge.Exact, false, false, knowledge.Approximate},
		{"went on from the log's position", knowledge.Partial, knowledge.Exact, false, false, knowledge.Exact},
		{"the log lost something", knowledge.Exact, knowledge.Partial, false, false, knowledge.Partial},
		{"another reader, and a rank that is not shared", knowledge.CatchingUp, knowledge.Exact, true, true, knowledge.CatchingUp},
		{"a rank that is not shared and not complete", knowledge.Partial, knowledge.Exact, true, false, knowledge.Partial},
	} {
		if got := joint(c.read, c.log, c.direct, c.backed); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// A stream read from its beginning belongs to the content's engine if it has the same batch at the
// last number and reaches the content's position.
func TestContinues(t *testing.T) {
	read := func(batches ...events.Update) (at int, reached bool) {
		s := &source{opened: shareHead{have: true, last: 7, sum: 70}}
		s.cold.Store(true)
		for i := range batches {
			if !s.continues(&batches[i]) {
				return i, false
			}
		}
		return len(batches), s.reached()
	}
	batch := func(n, sum uint64) events.Update {
		return events.Update{First: n, Last: n, After: events.Position{Seq: n + 1, Sum: sum}}
	}
	for _, c := range []struct {
		what    string
		batches []events.Update
		at      int
		reached bool
	}{
		{"the same", []events.Update{batch(6, 60), batch(7, 70), batch(8, 80)}, 3, true},
		{"another batch by that number", []events.Update{batch(6, 61), batch(7, 71), batch(8, 81)}, 1, false},
		{"a shorter log", []events.Update{batch(0, 1), batch(1, 2)}, 2, false},
		{"an empty log", nil, 0, false},
		{"the ring begins behind it", []events.Update{batch(9, 90)}, 1, true},
	} {
		if at, reached := read(c.batches...); at != c.at || reached != c.reached {
			t.Errorf("%s: stopped at %d, reached = %v; want %d, %v", c.what, at, reached, c.at, c.reached)
		}
	}
}
