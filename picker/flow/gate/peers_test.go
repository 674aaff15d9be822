package gate

import (
	"context"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// TestFirstBurst: replicas that nobody has asked for anything yet know of one another, also
// after their rules were changed, and so do not each give away all places to the first
// requests that come.
func TestFirstBurst(t *testing.T) {
	for _, again := range []bool{false, true} {
		const places = 48
		now := time.Unix(1000, 0)
		config := &Config{Sizing: rules.Sizing{Unit: rules.Requests, Requests: places / 6}, Queue: func() rules.Options { return rules.Options{} }}
		gates := map[string]*Gate{}
		for _, name := range []string{"a", "b", "c"} {
			g, err := New(Options{Pool: pool(6), Now: func() time.Time { return now }})
			if err != nil {
				t.Fatal(err)
			}
			g.Configure(config)
			gates[name] = g
		}
		round := func() {
			for name, g := range gates {
				g.Poll()
				g.Changes(false, func(model string, gauges []rules.Gauge) {
					for other, h := range gates {
						if other != name {
							h.Receive(name, model, gauges)
						}
					}
				})
			}
			now = now.Add(time.Second)
		}
		round()
		if again { // and nothing is told anew to the first that is back
			gates["a"].Configure(nil)
			gates["a"].Configure(config)
			gates["a"].Poll()
		}
		for range 4 {
			round()
		}
		took := 0
		for _, g := range gates {
			for range 2 * places {
				_, waits, err := g.Offer(context.Background(), asks("t"), func(error) {})
				if err != nil {
					t.Fatal(err)
				}
				if !waits {
					took++
				}
			}
		}
		if took > places+len(gates) || took < places/2 {
			t.Errorf("switched off and on %v: %d requests were let go before any replica heard of another's, for %d places", again, took, places)
		}
	}
}

// TestAnswers: a replica that runs short hears from the other that it knows so, and then takes
// what the other leaves.
func TestAnswers(t *testing.T) {
	const places = 48
	now := time.Unix(1000, 0)
	config := &Config{Sizing: rules.Sizing{Unit: rules.Requests, Requests: places / 6}, Queue: func() rules.Options { return rules.Options{} }}
	gates := map[string]*Gate{}
	for _, name := range []string{"a", "b"} {
		g, err := New(Options{Pool: pool(6), Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		g.Configure(config)
		gates[name] = g
	}
	other := map[string]*Gate{"a": gates["b"], "b": gates["a"]}
	round := func() {
		for _, name := range []string{"a", "b"} {
			g := gates[name]
			g.Poll()
			g.Changes(false, func(model string, gauges []rules.Gauge) { other[name].Receive(name, model, gauges) })
			g.Answers(func(model string, a rules.Answer) { other[name].Answered(name, model, a) })
		}
		now = now.Add(time.Millisecond) // what is not answered is not believed within this time
	}
	for range 3 {
		round()
	}
	now = now.Add(time.Minute)
	took := 0
	for range 2 * places {
		_, waits, err := gates["a"].Offer(context.Background(), asks("t"), func(err error) {
			if err == nil {
				took++
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if !waits {
			took++
		}
	}
	if took > places/2+2 {
		t.Errorf("%d of %d places are taken before the other answered", took, places)
	}
	for range 4 {
		round()
	}
	if took < places-2 || took > places {
		t.Errorf("%d of %d places are taken when the other has answered", took, places)
	}
}
