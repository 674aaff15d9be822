package demo

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Load of [RunFlow].
const (
	flowPlaces   = 8                     // request limit per engine, by configuration
	flowToken    = 19 * time.Millisecond // time per token of an engine with that many requests
	flowWindow   = 10 * time.Second
	flowStep     = 18 * time.Second // of each step
	flowWarm     = 8 * time.Second
	flowBackoff  = 200 * time.Millisecond
	flowSampling = 50 * time.Millisecond
)

// tenant is a group of users. Each user waits for an answer before the next request.
type tenant struct {
	name  string
	users int
}

// tenants have demands of 1 to 10 to 100; each demand exceeds a third of the capacity.
var tenants = []tenant{{"small", 20}, {"middle", 200}, {"large", 2000}}

// errand is a request with a short prompt and an answer of two seconds.
var errand = workload.Kind{Name: "errand", Turns: 1, UserTokens: 30, Spread: .5, Answer: 100}

// flowConfig divides the capacity evenly among tenants.
const flowConfig = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, name: gate, parameters: {maxConcurrency: 8}}
- {type: round-robin-fairness-policy, name: tenants}
flowControl:
  saturationDetector: {pluginRef: gate}
  defaultRequestTTL: 0s
  defaultPriorityBand: {fairnessPolicyRef: tenants, maxRequests: 10000}
`

// waitLong allows requests to wait longer than any run.
var waitLong = []string{"--max-message-timeout", "30m"}

// FlowSummary holds the results of [RunFlow].
type FlowSummary struct {
	Engines, Replicas, Places int
	Steps                     []FlowStep

	tenants []tenant
}

// FlowStep holds the results of one step.
type FlowStep struct {
	Name      string
	Answered  []uint64 // by tenant
	Failed    uint64
	LastError error
	Worst     []float64 // by tenant: largest relative deviation from its share in a window
	Windows   int
	Most      int     // largest number of requests in all engines at once
	Idle      float64 // mean share of unused capacity; below 0 if it was exceeded
}

// tenantsRun is a running RunFlow.
type tenantsRun struct {
	*group
	out     *FlowSummary
	work    *workload.Work
	runners []*workload.Runner
}

// RunFlow saturates the engines with three tenants over three replicas, kills and restarts a
// replica, and measures each tenant's work per ten seconds and the requests in the engines. All
// processes have ended when it returns.
func RunFlow(ctx context.Context, o Options) (*FlowSummary, error) {
	o.Step, o.Warm, o.Slots = cmp.Or(o.Step, flowStep), cmp.Or(o.Warm, flowWarm), cmp.Or(o.Slots, 4*flowPlaces)
	o.Config, o.Flags, o.FailClosed = flowConfig, waitLong, !o.FailOpen
	f := &tenantsRun{out: &FlowSummary{
		Engines: o.Engines, Replicas: o.Replicas, Places: flowPlaces * o.Engines,
		tenants: o.tenants,
	}}
	if f.out.tenants == nil {
		f.out.tenants = tenants
	}
	err := o.stage(ctx, QualityCase{Sharing: rig.Shared}, func(g *group) error {
		f.group = g
		return f.play(ctx)
	})
	switch {
	case ctx.Err() != nil:
		return nil, ErrInterrupted
	case err != nil:
		return nil, fmt.Errorf("demo: %w", err)
	}
	return f.out, nil
}

func (f *tenantsRun) play(ctx context.Context) error {
	f.work = workload.NewWork(len(f.out.tenants), time.Now(), 250*time.Millisecond)
	clients := workload.NewClient(f.URL, 4096).HTTP
	defer clients.CloseIdleConnections()
	for i, t := range f.out.tenants {
		client := workload.NewClient(f.URL, 1)
		client.HTTP, client.Header = clients, http.Header{http.CanonicalHeaderKey(request.HeaderFairness): {t.name}}
		w, err := workload.Start(workload.Options{
			Source: workload.NewSource(errand, uint64(i+1), vocab.Name, 1), Client: client, Users: t.users, Seed: uint64(i + 1), Backoff: flowBackoff,
			Ended: func(at time.Time, o *workload.Outcome) { f.ended(i, at, o) },
		})
		if err != nil {
			return err
		}
		f.runners = append(f.runners, w)
	}
	defer f.stop()
	if err := f.last(ctx, f.o.Warm, f.runners...); err != nil {
		return err
	}
	last := f.List[len(f.List)-1]
	fmt.Fprintln(f.o.Out, f.out.header())
	for _, s := range []haAction{
		{"all live", func(ctx context.Context) error { return f.last(ctx, f.o.Step, f.runners...) }},
		{"one is killed (kill -9)", func(ctx context.Context) error {
			last.Kill()
			return f.last(ctx, f.o.Step, f.runners...)
		}},
		{"it is back", func(ctx context.Context) error {
			if err := f.Restart(ctx, last); err != nil {
				return err
			}
			return f.last(ctx, f.o.Step, f.runners...)
		}},
	} {
		if err := f.step(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// ended records the work of an answer.
func (f *tenantsRun) ended(tenant int, at time.Time, o *workload.Outcome) {
	if o.Err == nil {
		f.work.Add(tenant, at, min(o.Latency, time.Duration(float64(o.OutputTokens)*float64(flowToken)/max(f.o.Speed, 1))), float64(o.OutputTokens))
	}
}

// stop cancels all requests at once, including many waiting ones.
func (f *tenantsRun) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var wg sync.WaitGroup
	for _, w := range f.runners {
		wg.Go(func() { w.Stop(ctx) })
	}
	wg.Wait()
}

// step performs one action and measures during it.
func (f *tenantsRun) step(ctx context.Context, a haAction) error {
	before := make([]workload.Totals, len(f.runners))
	for i, w := range f.runners {
		before[i] = w.Totals()
	}
	watch := watchPlaces(f.group)
	begun := time.Now()
	err := a.do(ctx)
	held := watch.end()
	if err != nil {
		return err
	}
	s := FlowStep{Name: a.name, Most: held.most, Idle: 1 - held.mean/float64(f.out.Places)}
	for i, w := range f.runners {
		now := w.Totals()
		d := now.Minus(&before[i])
		failed := Failures(&d)
		s.Answered, s.Failed = append(s.Answered, d.Requests-failed), s.Failed+failed
		if failed > 0 {
			s.LastError = w.LastError()
		}
	}
	// The most recent answers are still incomplete.
	list := f.work.Windows(begun, time.Now().Add(-flowWindow/4), flowWindow)
	s.Worst, s.Windows = worst(list), len(list)
	f.out.Steps = append(f.out.Steps, s)
	fmt.Fprintln(f.o.Out, f.out.line(&s))
	return nil
}

// worst returns the largest deviation of each tenant's work from an equal share.
func worst(list []workload.Window) []float64 {
	var out []float64
	for i := range list {
		fair := list[i].Sum() / float64(len(list[i].Done))
		for t, v := range list[i].Done {
			if len(out) <= t {
				out = append(out, 0)
			}
			if d := (v - fair) / max(fair, 1); d*d > out[t]*out[t] {
				out[t] = d
			}
		}
	}
	return out
}

// places counts requests in engines, as reported by the engines.
type places struct {
	most    int     // at once
	mean    float64 // over time
	waiting float64 // mean number that wait inside engines
}

// placesWatch samples the requests in engines.
type placesWatch struct {
	stop chan struct{}
	done chan places
}

func watchPlaces(g *group) *placesWatch {
	w := &placesWatch{stop: make(chan struct{}), done: make(chan places, 1)}
	go func() {
		var p places
		n := 0
		tick := time.NewTicker(flowSampling)
		defer tick.Stop()
		for {
			running, waiting := g.Held()
			n++
			p.most = max(p.most, running+waiting)
			p.mean += (float64(running+waiting) - p.mean) / float64(n)
			p.waiting += (float64(waiting) - p.waiting) / float64(n)
			select {
			case <-tick.C:
			case <-w.stop:
				w.done <- p
				return
			}
		}
	}()
	return w
}

func (w *placesWatch) end() places {
	close(w.stop)
	return <-w.done
}
