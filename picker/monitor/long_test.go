package monitor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

// longRun simulates an hour of overloaded engines in virtual time, with prompts of up to 100,000
// tokens, which take 20 s each, one after the other.
type longRun struct {
	t       *testing.T
	now     time.Time
	begun   time.Time
	rng     *rand.Rand
	pool    *endpoint.Pool
	monitor *Monitor
	picker  *picker.Scheduler
	engines map[string]*longEngine
	flying  []*longRequest
	served  int
	waited  time.Duration // longest
	whole   int           // answers that were not streamed
	cut     int           // requests that a limit of three times the prediction, at least 60 s, would have ended
}

// longEngine prefills one prompt after the other, and decodes the others at the same time.
type longEngine struct {
	free      time.Time // when all of its prompts are prefilled
	generated float64
	down      time.Time // until then connections are refused
	quiet     time.Time // until then its page shows the restart
}

type longRequest struct {
	*request.Decision
	at     string
	stream bool
	sent   time.Time
	first  time.Time
	end    time.Time
	seen   bool
	limit  time.Duration
}

const (
	longRate   = 5000. // prompt tokens per second
	longStep   = 40 * time.Millisecond
	longAnswer = 60
)

// leastWork is a profile handler that prefers the engine with the least queued prefill.
type leastWork struct{ run *longRun }

func (l leastWork) Handle(c *cycle.Cycle, plan *cycle.Plan) error {
	best := int32(-1)
	for i := range c.Len() {
		if best < 0 || l.run.engines[c.At(i).Address].free.Before(l.run.engines[c.At(int(best)).Address].free) {
			best = int32(i)
		}
	}
	plan.Order = append(plan.Order, best)
	return nil
}

func newLongRun(t *testing.T, seed uint64) *longRun {
	r := &longRun{t: t, begun: time.Unix(100_000, 0), rng: rand.New(rand.NewPCG(seed, 7)), engines: map[string]*longEngine{}}
	r.now = r.begun
	clock := func() time.Time { return r.now }
	r.pool = endpoint.NewPool(endpoint.PoolOptions{Now: clock})
	var err error
	if r.monitor, err = New(Options{Pool: r.pool, Now: clock}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.monitor.Close)
	r.picker, err = picker.New(picker.Options{Pool: r.pool, Now: clock, Rules: &picker.Rules{Handler: leastWork{r}}, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	r.scale(4)
	return r
}

// scale changes the number of engines to n.
func (r *longRun) scale(n int) {
	var specs []endpoint.Spec
	for i := range n {
		s := endpoint.Spec{Addr: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(8000+i))}
		specs = append(specs, s)
		if a := s.Addr.String(); r.engines[a] == nil {
			r.engines[a] = &longEngine{free: r.now}
		}
	}
	r.pool.Set(specs)
}

// arrive sends one request.
func (r *longRun) arrive() {
	tokens := 1000 + r.rng.IntN(4000)
	if r.rng.IntN(3) > 0 {
		tokens = 60_000 + r.rng.IntN(40_000)
	}
	q := &request.Request{
		ID: fmt.Sprint(r.served, r.now.UnixNano()), Path: "/v1/completions", Kind: request.KindCompletions, Model: "m", Target: "m",
		InputTokens: tokens, Stream: r.rng.IntN(2) == 0,
	}
	d, err := r.picker.Choose(context.Background(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	e := r.engines[d.Endpoints[0]]
	if e.free.Before(r.now) {
		e.free = r.now
	}
	predicted := r.predicted(q.ID) + longAnswer*longStep
	noise := .8 + .4*r.rng.Float64()
	e.free = e.free.Add(time.Duration(noise * float64(tokens) / longRate * float64(time.Second)))
	f := &longRequest{Decision: d, at: d.Endpoints[0], stream: q.Stream, sent: r.now, first: e.free, end: e.free.Add(longAnswer * longStep), limit: max(3*predicted, time.Minute)}
	if e.down.After(r.now) { // the proxy cannot connect
		d.Observe(request.Event{Kind: request.EventHeaders, At: r.now, Status: 503, Local: true})
		d.Done(request.Outcome{At: r.now, Status: 503, Complete: true})
		return
	}
	r.flying = append(r.flying, f)
}

// predicted returns the predicted time to first token of a request.
func (r *longRun) predicted(id string) time.Duration {
	e, found := r.picker.Records().Explain(id)
	if !found {
		r.t.Fatal("the decision was not recorded")
	}
	return time.Duration(e.Predicted.TTFT * float64(time.Millisecond))
}

// move delivers the answers that are due.
func (r *longRun) move() {
	kept := r.flying[:0]
	for _, f := range r.flying {
		e := r.engines[f.at]
		if e.down.After(r.now) { // it died with the engine
			f.Done(request.Outcome{At: r.now, Status: 0})
			continue
		}
		if !r.now.Before(f.first) && r.now.Before(f.end) {
			e.generated += float64(tickEvery / longStep)
		}
		if f.stream && !f.seen && !r.now.Before(f.first) {
			f.seen = true
			f.Observe(request.Event{Kind: request.EventHeaders, At: r.now, Status: 200, Served: f.at})
			f.Observe(request.Event{Kind: request.EventFirstToken, At: r.now})
		}
		if r.now.Before(f.end) {
			kept = append(kept, f)
			continue
		}
		if !f.stream {
			f.Observe(request.Event{Kind: request.EventHeaders, At: r.now, Status: 200, Served: f.at})
		}
		if !f.stream {
			r.whole++
			if r.now.Sub(f.sent) > f.limit {
				r.cut++
			}
		}
		r.served++
		r.waited = max(r.waited, f.first.Sub(f.sent))
		f.Done(request.Outcome{At: r.now, Status: 200, Complete: true, Served: f.at, Usage: request.Usage{Seen: true, OutputTokens: longAnswer}})
	}
	r.flying = kept
}

// look reads the pages and advances the health state.
func (r *longRun) look() {
	for _, ep := range r.pool.Snapshot().Endpoints {
		e := r.engines[ep.Address]
		if e.down.After(r.now) {
			r.monitor.Read(ep, scrape.Reading{At: r.now, Refused: true})
			continue
		}
		r.monitor.Read(ep, scrape.Reading{At: r.now, Answered: true, Page: &scrape.Page{Generated: e.generated}})
	}
	r.monitor.Tick()
}

// TestNoFalseAlarms: in an hour of overload with long prompts, restarts and added engines, no
// healthy endpoint is excluded.
func TestNoFalseAlarms(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { longHour(t, newLongRun(t, seed)) })
	}
}

func longHour(t *testing.T, r *longRun) {
	suspects := 0
	for tick := 0; r.now.Sub(r.begun) < time.Hour; tick++ {
		r.now = r.now.Add(tickEvery)
		at := r.now.Sub(r.begun)
		if at%(10*time.Minute) == 5*time.Minute { // one restarts
			e := r.engines[fmt.Sprintf("10.0.0.1:%d", 8000+r.rng.IntN(4))]
			e.down, e.quiet, e.free = r.now.Add(20*time.Second), r.now.Add(35*time.Second), r.now.Add(20*time.Second)
			e.generated = 0
		}
		if at == 30*time.Minute {
			r.scale(6)
		}
		if r.rng.Float64() < .045*float64(tickEvery)/float64(100*time.Millisecond) && len(r.flying) < 60 {
			r.arrive()
		}
		r.move()
		r.look()
		for _, ep := range r.pool.Snapshot().Endpoints {
			v := r.pool.Health().View(int(ep.ID))
			if r.engines[ep.Address].quiet.After(r.now) {
				continue
			}
			switch v.State {
			case health.Out, health.Probing:
				t.Fatalf("after %v: %s is %s (%s: %s), and nothing is wrong with it", at, ep.Address, v.State, v.Cause, v.Evidence())
			case health.Suspect:
				suspects++
			}
		}
	}
	if r.waited < time.Minute || r.served < 300 {
		t.Errorf("%d requests, the longest wait %v: this is no overload", r.served, r.waited)
	}
	t.Logf("%d requests, first tokens after up to %v; suspect for %v of %v; of %d whole answers %d took longer than a limit of three times the prediction, and a minute at least, would allow",
		r.served, r.waited.Round(time.Second), time.Duration(suspects)*tickEvery, 5*time.Hour, r.whole, r.cut) // suspect: of all engines
}
