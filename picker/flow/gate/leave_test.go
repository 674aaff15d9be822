package gate

import (
	"context"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestLeaves: a request that moves to another cluster, immediately or while it waits, is removed
// from the queue and releases permits that arrived at the same moment.
func TestLeaves(t *testing.T) {
	for _, c := range []struct {
		name   string
		leaves func(n int, free func()) bool // nth call
		told   bool                          // as waiting
		gone   bool
		asked  int
	}{
		{name: "at once", gone: true, asked: 1, leaves: func(int, func()) bool { return true }},
		{name: "later", told: true, gone: true, asked: 4, leaves: func(n int, _ func()) bool { return n == 4 }},
		{name: "when a place comes", told: true, gone: true, asked: 2, leaves: func(n int, free func()) bool {
			if n == 2 {
				free()
			}
			return n == 2
		}},
		{name: "it stays, and a place comes", told: true, asked: 3, leaves: func(n int, free func()) bool {
			if n == 3 {
				free()
			}
			return false
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := New(Options{Pool: pool(1)})
			if err != nil {
				t.Fatal(err)
			}
			g.look = time.Millisecond
			g.Configure(&Config{Sizing: rules.Sizing{Unit: rules.Requests, Requests: 1}, Queue: func() rules.Options { return rules.Options{} }})
			holder, err := g.Wait(context.Background(), asks("a"))
			if err != nil {
				t.Fatal(err)
			}
			freed, told, asked := false, false, 0
			free := func() { g.Leave(holder, 1); freed = true }
			r := asks("a")
			r.Waits = func() { told = true }
			r.Leaves = func(float64) bool {
				asked++
				return c.leaves(asked, free)
			}
			p, err := g.Wait(context.Background(), r)
			if gone := err != nil; gone != c.gone || told != c.told || asked != c.asked {
				t.Errorf("permit %v, %v, waited %v, %d calls", p, err, told, asked)
			}
			if c.gone && request.ReasonOf(err) != request.ReasonSaturated {
				t.Errorf("left with outcome %v", err)
			}
			if !freed {
				free()
			}
			g.Leave(p, -1)
			if s := g.Status()[0]; s.InFlight != 0 || s.Waiting != 0 {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// TestLeft: a wait is predicted to end as first predicted, and an overdue one to continue.
func TestLeft(t *testing.T) {
	s := int64(time.Second)
	w := wait{begun: 5 * s, expected: 10}
	for at, want := range map[int64]float64{5: 10, 12: 3, 15: 0, 25: 10} {
		if got := w.left(at * s); got != want {
			t.Errorf("after %d s: %v s, want %v", at-5, got, want)
		}
	}
}
