package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

var floodRequests = flag.Int("flood.requests", 400, "requests of 100 KB that TestFlood offers to a full pool")

const flooded = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 2}}
flowControl:
  defaultRequestTTL: 0s
  maxBytes: 8Mi
  saturationDetector: {pluginRef: concurrency-detector}
`

// TestFlood sends large requests to a full pool. As many wait as the configured bytes allow; the
// others get 429 at once. Afterwards all waiting requests are served, and a new one does not wait.
func TestFlood(t *testing.T) {
	const limit, size = 8 << 20, 100 << 10
	for name, kind := range map[string]envoyconf.Kind{"buffered": envoyconf.Resilient, "full duplex": envoyconf.Gateway} {
		t.Run(name, func(t *testing.T) {
			r := open(t, rigOptions{kind: kind, engines: 1, server: func(o *server.Options) {
				config(t, flooded)(o)
				o.MessageTimeout = time.Minute
			}})
			e := r.fleet.Engines()[0]
			e.Hang(faults.HangEngine)
			body := fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":4}`, vocab.Name, strings.Repeat("some words ", size/11))
			var served, refused, other, next atomic.Int64
			var wg sync.WaitGroup
			for range 120 {
				wg.Go(func() {
					for next.Add(1) <= int64(*floodRequests) {
						resp, err := r.client.HTTP.Post(r.client.URL+"/v1/completions", "application/json", strings.NewReader(body))
						if err != nil {
							t.Error(err)
							return
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
						switch drop := resp.Header.Get("x-llm-d-request-dropped-reason"); {
						case resp.StatusCode == http.StatusOK:
							served.Add(1)
						case resp.StatusCode == http.StatusTooManyRequests && drop == "rejected-saturated":
							refused.Add(1)
						default:
							other.Add(1)
							t.Errorf("status %d %q", resp.StatusCode, drop)
						}
					}
				})
			}
			most, waiting := int64(0), 0
			testkit.Await(t, "all that may not wait are refused", func() bool {
				for _, q := range r.servers[0].Status().Queues {
					waiting = q.Waiting
					for _, b := range q.Bands {
						most = max(most, b.Bytes)
					}
				}
				// Two requests are at the engine, and waiting ones hold their goroutines.
				return refused.Load()+other.Load() >= int64(*floodRequests-waiting-2) && waiting > 0
			})
			if most > limit || most < limit-2*size {
				t.Errorf("%d bytes waited at most, want nearly %d", most, limit)
			}
			e.Hang(faults.HangNone)
			wg.Wait()
			if served.Load() != int64(waiting+2) || served.Load()+refused.Load() != int64(*floodRequests) {
				t.Errorf("%d served, %d refused of %d; %d waited", served.Load(), refused.Load(), *floodRequests, waiting)
			}
			r.settle()
			resp, err := r.client.HTTP.Post(r.client.URL+"/v1/completions", "application/json", bytes.NewReader([]byte(body)))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("afterwards: status %d", resp.StatusCode)
			}
			t.Logf("%d requests: %d waited in at most %d bytes, %d were refused", *floodRequests, waiting, most, refused.Load())
		})
	}
}
