package gate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestMoveAway: a request about which its proxy asks another replica is refused, and others keep waiting.
func TestMoveAway(t *testing.T) {
	g := open(t, pool(1), 1, rules.Options{})
	held, err := pass(t.Context(), g, asks("running"))
	if err != nil {
		t.Fatal(err)
	}
	ended := map[bool]chan error{true: make(chan error, 1), false: make(chan error, 1)}
	for moves, end := range ended {
		r := asks("waiting")
		r.Moves = moves
		go func() {
			p, err := pass(t.Context(), g, r)
			g.Leave(p, 0)
			end <- err
		}()
	}
	waiting(t, g, 2)
	g.MoveAway()
	var refusal *request.Error
	if err := <-ended[true]; !errors.As(err, &refusal) || refusal.Reason != request.ReasonShuttingDown {
		t.Errorf("the request that moves ends with %v", err)
	}
	waiting(t, g, 1)
	g.Leave(held, 0)
	if err := <-ended[false]; err != nil {
		t.Errorf("the other one ends with %v", err)
	}
}

// TestWithdraw: a request that moves to another cluster, immediately or while it waits, is removed
// from the queue and releases permits that arrived at the same moment.
func TestWithdraw(t *testing.T) {
	for _, c := range []struct {
		name      string
		pauses    int  // before it is withdrawn
		freed     bool // its permit arrives just before
		withdrawn bool
	}{
		{name: "at once", withdrawn: true},
		{name: "later", pauses: 3, withdrawn: true},
		{name: "when a permit arrives", pauses: 1, freed: true, withdrawn: true},
		{name: "it stays, and a permit arrives", pauses: 2, freed: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := New(Options{Pool: pool(1)})
			if err != nil {
				t.Fatal(err)
			}
			g.Configure(&Config{Sizing: rules.Sizing{Unit: rules.Requests, Requests: 1}, Queue: func() rules.Options { return rules.Options{} }})
			holder, err := pass(context.Background(), g, asks("a"))
			if err != nil {
				t.Fatal(err)
			}
			p, entry, err := g.Enter(context.Background(), asks("a"))
			if err != nil || entry == nil {
				t.Fatalf("Enter() = %v, %v, want a place in the queue", entry, err)
			}
			for range c.pauses {
				if waits, err := entry.Wait(context.Background(), time.Millisecond); err != nil || !waits {
					t.Fatalf("Wait() = %v, %v before there is a permit", waits, err)
				}
			}
			if c.freed {
				g.Leave(holder, 1)
			}
			if c.withdrawn {
				entry.Withdraw()
			} else if waits, err := entry.Wait(context.Background(), 0); err != nil || waits {
				t.Errorf("Wait() = %v, %v, want a permit", waits, err)
			} else {
				g.Leave(p, -1)
			}
			if !c.freed {
				g.Leave(holder, 1)
			}
			if s := g.Status()[0]; s.InFlight != 0 || s.Waiting != 0 {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// TestExpected: a wait is predicted to end as first predicted, and an overdue one to continue.
func TestExpected(t *testing.T) {
	s := int64(time.Second)
	w := waiter{begun: 5 * s, expected: 10}
	for at, want := range map[int64]float64{5: 10, 12: 3, 15: 0, 25: 10} {
		if got := w.left(at * s); got != want {
			t.Errorf("after %d s: %v s, want %v", at-5, got, want)
		}
	}
}
