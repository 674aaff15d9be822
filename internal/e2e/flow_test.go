package e2e

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

const queueing = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
objectives:
- {name: batch, priority: -1}
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 2}}
flowControl:
  defaultRequestTTL: 30s
  saturationDetector: {pluginRef: concurrency-detector}
`

// TestRequestsWait checks that requests to a full pool wait at the picker, longer than the proxy's
// usual timeout, and leave by priority.
func TestRequestsWait(t *testing.T) {
	r := open(t, rigOptions{
		engines: 2,
		server: func(o *server.Options) {
			config(t, queueing)(o)
			o.MessageTimeout, o.MaxMessageTimeout = time.Second, time.Minute
		},
		params: func(p *envoyconf.Params) { p.MessageTimeout = time.Second },
	})
	for _, e := range r.fleet.Engines() {
		e.Hang(faults.HangEngine)
	}
	var wg sync.WaitGroup
	ask := func(objective string, n int) {
		for range n {
			wg.Go(func() {
				if status, drop := r.ask(objective); status != http.StatusOK {
					t.Errorf("status %d %q, want 200", status, drop)
				}
			})
		}
	}
	waiting := func() (n int) {
		for _, q := range r.servers[0].Status().Queues {
			n += q.Waiting
		}
		return n
	}
	ask("", 4)
	testkit.Await(t, "four requests in flight", func() bool { return r.inFlight(0) == 4 })
	ask("batch", 2)
	testkit.Await(t, "two requests wait", func() bool { return waiting() == 2 })
	ask("", 3)
	testkit.Await(t, "five requests wait", func() bool { return waiting() == 5 })
	since := time.Now()
	testkit.Await(t, "the proxy's timer has passed", func() bool { return time.Since(since) > 1500*time.Millisecond })
	if n := waiting(); n != 5 || r.inFlight(0) != 4 {
		t.Errorf("%d requests wait and %d are in flight, want 5 and 4: the proxy did not prolong its timer", n, r.inFlight(0))
	}
	for _, e := range r.fleet.Engines() {
		e.Hang(faults.HangNone)
	}
	wg.Wait()
	r.settle()
	if q := r.servers[0].Status().Queues[0]; q.Waiting != 0 || q.InFlight != 0 || q.Outcomes["dispatched"] != 9 {
		t.Errorf("afterwards: %+v", q)
	}
}

// TestDrainGoesOn checks requests that wait at a draining replica. They continue in order and
// within the limit; near the end of the drain time the rest is dispatched at once. No request is
// lost.
func TestDrainGoesOn(t *testing.T) {
	r := open(t, rigOptions{engines: 1, server: func(o *server.Options) {
		config(t, queueing)(o)
		o.MessageTimeout = time.Minute
	}})
	e := r.fleet.Engines()[0]
	e.Hang(faults.HangEngine)
	has := func() (n int) {
		for _, s := range e.Stats() {
			n += s.Engine.Running + s.Engine.Waiting
		}
		return n
	}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if status, drop := r.ask(""); status != http.StatusOK {
				t.Errorf("status %d %q, want 200", status, drop)
			}
		})
	}
	s := r.servers[0]
	testkit.Await(t, "two at the engine, four wait", func() bool {
		q := s.Status().Queues
		return len(q) == 1 && q[0].Waiting == 4 && has() == 2
	})
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	stopped := make(chan error, 1)
	begun := time.Now()
	go func() { stopped <- s.Stop(ctx) }()
	most := 0
	testkit.Await(t, "all are at the engine", func() bool { // two seconds before the end
		n := has()
		if time.Since(begun) < 5*time.Second {
			most = max(most, n)
		}
		return n == 6
	})
	if took := time.Since(begun); most > 2 || took < 5*time.Second {
		t.Errorf("%d requests were at the engine while it drained, which has 2 places; all went after %v", most, took)
	}
	e.Hang(faults.HangNone)
	wg.Wait()
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
}
