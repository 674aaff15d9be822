package gate

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/health"
)

// An engine with implausible gauges uses only its own permits, and its number of running requests
// is not trusted.
func TestNonsenseGauges(t *testing.T) {
	p, now := pool(4), time.Now()
	clock := func() time.Time { return now }
	g, err := New(Options{Pool: p, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	sizing := rules.Sizing{Unit: rules.Requests, Requests: 8}
	configure := func() {
		g.Configure(&Config{Sizing: sizing, Queue: func() rules.Options { return rules.Options{} }})
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
		g.Poll()
	}
	place, err := pass(context.Background(), g, asks("a"))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		now = now.Add(50 * time.Millisecond)
		say(math.MaxInt32, math.MaxInt32)
	}
	if s := g.Status()[0]; s.InFlight > 8 || s.Lost > 7 {
		t.Errorf("one of four engines with 8 permits reports nonsense: %d of %d held, %d unaccounted", s.InFlight, s.Permits, s.Lost)
	}
	g.Leave(place, -1)
	sizing = rules.Sizing{Unit: rules.Learned, Queue: 5}
	configure()
	say(math.MaxInt32, 1)
	if s := g.Status()[0]; s.Permits != mostPlaces+3*firstGuess+4*5 {
		t.Errorf("learned %d permits", s.Permits)
	}
}

// Requests at endpoints that accept no new ones do not take permits of healthy endpoints. The
// endpoint hangs, has left the list while answering, or is ramping up.
func TestStrandedRequestsTakeNoRoom(t *testing.T) {
	const each = 4
	for _, c := range []struct {
		name    string
		happens func(t *testing.T, p *endpoint.Pool, specs []endpoint.Spec)
		ends    func(p *endpoint.Pool, specs []endpoint.Spec)
	}{
		{"it is out", func(_ *testing.T, p *endpoint.Pool, _ []endpoint.Spec) { p.Snapshot().Endpoints[0].SetDown(true) },
			func(p *endpoint.Pool, _ []endpoint.Spec) { p.Snapshot().Endpoints[0].SetDown(false) }},
		{"it left the list", func(_ *testing.T, p *endpoint.Pool, specs []endpoint.Spec) { p.Set(specs[1:]) },
			func(p *endpoint.Pool, specs []endpoint.Spec) { p.Set(specs) }},
		{"it is forgotten", func(_ *testing.T, p *endpoint.Pool, specs []endpoint.Spec) { p.Set(specs[1:]) }, nil},
		{"it gets a few of a hundred", func(t *testing.T, p *endpoint.Pool, _ []endpoint.Spec) { p.SetHealth(distrust(t)) },
			func(p *endpoint.Pool, _ []endpoint.Spec) { p.SetHealth(nil) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Now()
			p := endpoint.NewPool(endpoint.PoolOptions{Keep: 30 * time.Second, Now: func() time.Time { return now }})
			var specs []endpoint.Spec
			for _, ep := range pool(2).Snapshot().Endpoints {
				specs = append(specs, ep.Spec)
			}
			p.Set(specs)
			sick := p.Snapshot().Endpoints[0]
			g, err := New(Options{Pool: p, Now: func() time.Time { return now }})
			if err != nil {
				t.Fatal(err)
			}
			g.Configure(&Config{Sizing: rules.Sizing{Unit: rules.Requests, Requests: each}, Queue: func() rules.Options { return rules.Options{} }})
			var tickets [each]endpoint.Ticket
			places := make([]picker.Permit, each)
			for i := range tickets {
				if places[i], err = pass(context.Background(), g, asks("a")); err != nil {
					t.Fatal(err)
				}
				p.LoadTracker().Open(&tickets[i], sick, endpoint.Work{Input: 1}, now)
			}
			look := func(free int64) {
				t.Helper()
				now = now.Add(100 * time.Millisecond)
				g.Poll()
				if s := g.Status()[0]; s.Permits-s.InFlight != free {
					t.Errorf("%d of %d permits are held, want all but %d", s.InFlight, s.Permits, free)
				}
			}
			c.happens(t, p, specs)
			look(each)
			if c.ends == nil {
				now = now.Add(time.Minute)
				p.Expire()
				look(each)
			}
			tickets[0].Release()
			g.Leave(places[0], 0)
			look(each)
			if c.ends != nil {
				c.ends(p, specs)
				look(each + 1)
			}
		})
	}
}

// distrust returns a health view in which endpoint 0 is suspect.
func distrust(t *testing.T) *health.Snapshot {
	t.Helper()
	s, now := health.NewSet(health.Options{}), time.Now()
	for id := range 2 {
		s.Join(id, "m", now)
	}
	for i := range uint64(20) {
		now = now.Add(100 * time.Millisecond)
		e := health.Evidence{Good: 20 * i}
		s.Receive("r", 1, e, now)
		e = health.Evidence{}
		e.Bad[health.Failed] = i
		s.Receive("r", 0, e, now)
		s.Step(now)
		if v := s.View(0); v.State == health.Suspect {
			return s.Snapshot()
		}
	}
	t.Fatalf("health is %+v, want suspect", s.View(0))
	return nil
}

// BenchmarkLook measures one pass over a pool of that many models with 64 endpoints each.
func BenchmarkLook(b *testing.B) {
	for _, models := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("models=%d", models), func(b *testing.B) {
			p := pool(models * 64)
			for i, ep := range p.Snapshot().Endpoints {
				p.SetModels(ep.ID, endpoint.ModelList{Models: []endpoint.Model{{Name: fmt.Sprint("m", i%models)}}}, time.Now())
			}
			g := open(b, p, 4, rules.Options{})
			b.ReportAllocs()
			for b.Loop() {
				g.Poll()
			}
		})
	}
}
