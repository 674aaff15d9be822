package e2e

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/server"
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

// TestRequestsWait: requests that a full pool has no place for wait at the picker, for
// longer than the proxy's usual timer, and go by priority.
func TestRequestsWait(t *testing.T) {
	r := open(t, rigOptions{
		engines: 2,
		server: func(o *server.Options) {
			config(t, queueing)(o)
			o.MessageTimeout, o.MaxMessageTimeout = time.Second, time.Minute
		},
		config: func(yaml string) string {
			return strings.Replace(yaml, " message_timeout: 5s", " message_timeout: 1s", 1)
		},
	})
	for _, e := range r.fleet.Engines() {
		e.Hang(sim.HangEngine)
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
	eventually(t, "four requests in flight", func() bool { return r.inFlight(0) == 4 })
	ask("batch", 2)
	eventually(t, "two requests wait", func() bool { return waiting() == 2 })
	ask("", 3)
	eventually(t, "five requests wait", func() bool { return waiting() == 5 })
	since := time.Now()
	eventually(t, "the proxy's timer has passed", func() bool { return time.Since(since) > 1500*time.Millisecond })
	if n := waiting(); n != 5 || r.inFlight(0) != 4 {
		t.Errorf("%d requests wait and %d are in flight, want 5 and 4: the proxy did not prolong its timer", n, r.inFlight(0))
	}
	for _, e := range r.fleet.Engines() {
		e.Hang(sim.HangNone)
	}
	wg.Wait()
	r.settle()
	if q := r.servers[0].Status().Queues[0]; q.Waiting != 0 || q.InFlight != 0 || q.Outcomes["dispatched"] != 9 {
		t.Errorf("afterwards: %+v", q)
	}
}
