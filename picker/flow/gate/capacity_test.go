package gate

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow"
)

// An engine whose gauges are nonsense takes no room but its own, and is not believed to take
// any number of requests.
func TestNonsenseGauges(t *testing.T) {
	p, now := pool(4), time.Now()
	clock := func() time.Time { return now }
	g, err := New(Options{Pool: p, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	sizing := flow.Sizing{Unit: flow.Requests, Requests: 8}
	configure := func() {
		g.Configure(&Config{Sizing: sizing, Queue: func() flow.Options { return flow.Options{} }})
	}
	configure()
	say := func(running, waiting int) {
		for i, ep := range p.Snapshot().Endpoints {
			gauges := endpoint.Gauges{At: now}
			if i == 0 {
				gauges.Running, gauges.Waiting = running, waiting
			}
			ep.SetGauges(gauges)
		}
		g.Look()
	}
	place, err := g.Wait(context.Background(), asks("a"))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		now = now.Add(50 * time.Millisecond)
		say(math.MaxInt32, math.MaxInt32)
	}
	if s := g.Status()[0]; s.InFlight > 8 || s.Lost > 7 {
		t.Errorf("one of four engines of 8 places says nonsense: %d of %d are held, %d by nobody", s.InFlight, s.Places, s.Lost)
	}
	g.Leave(place, -1)
	sizing = flow.Sizing{Unit: flow.Learned, Queue: 5}
	configure()
	say(math.MaxInt32, 1)
	if s := g.Status()[0]; s.Places != mostPlaces+3*firstGuess+4*5 {
		t.Errorf("%d places are learned", s.Places)
	}
}
