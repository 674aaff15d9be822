package gate

import (
	"context"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// TestFirstBurst: replicas without requests so far have each other's gauges, also after a
// reconfiguration. So they do not each dispatch requests for all permits on the first burst.
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
		if again { // without new gauges for the first one that returns
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
			t.Errorf("reconfigured = %v: %d requests dispatched before replicas received messages from each other, with %d permits", again, took, places)
		}
	}
}

// TestAnswers: a replica that runs short gets its peer's acknowledgment and then takes the permits
// that the peer leaves.
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
		now = now.Add(time.Millisecond) // within this time, missing acknowledgments are not assumed
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
		t.Errorf("%d of %d permits are taken before the peer acknowledged", took, places)
	}
	for range 4 {
		round()
	}
	if took < places-2 || took > places {
		t.Errorf("%d of %d permits are taken after the peer acknowledged", took, places)
	}
}
