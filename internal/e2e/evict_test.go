package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

const evicting = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
objectives:
- {name: batch, priority: -1}
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 2}}
flowControl:
  enableEviction: true
  saturationDetector: {pluginRef: concurrency-detector}
`

// evicted is a client's view of a request.
type evicted struct {
	status int
	drop   string
	body   []byte
	err    error // while reading the answer
}

// TestEvict checks that running batch requests are evicted for others: with 429 before their answer
// has begun, with a reset afterwards. The engine becomes free, and its health is not affected.
func TestEvict(t *testing.T) {
	for name, kind := range map[string]envoyconf.Kind{"buffered": envoyconf.Resilient, "full duplex": envoyconf.Gateway} {
		t.Run(name, func(t *testing.T) {
			r := open(t, rigOptions{kind: kind, engines: 1, engine: sim.Options{Speed: 1}, server: config(t, evicting)})
			whole := r.long("batch", false, 6000) // takes two minutes unless it is cancelled
			testkit.Await(t, "one request in flight", func() bool { return r.engineHas(1) })
			stream := r.long("batch", true, 6000)
			testkit.Await(t, "two requests in flight", func() bool { return r.engineHas(2) })
			first, second := r.long("", false, 30), r.long("", false, 30)
			for _, answer := range []<-chan evicted{first, second} {
				if a := <-answer; a.status != http.StatusOK || a.err != nil || len(a.body) == 0 {
					t.Errorf("a request of a higher priority: status %d, %v", a.status, a.err)
				}
			}
			a := <-whole
			var doc struct {
				Error struct{ Code, Message string }
			}
			if err := json.Unmarshal(a.body, &doc); err != nil || a.status != http.StatusTooManyRequests || a.drop != "evicted" || doc.Error.Code != "evicted" {
				t.Errorf("the whole answer: status %d, reason %q, body %s", a.status, a.drop, a.body)
			}
			if a := <-stream; a.status != http.StatusOK || a.err == nil || bytes.Contains(a.body, []byte("[DONE]")) {
				t.Errorf("the stream: status %d, error %v, %d bytes", a.status, a.err, len(a.body))
			}
			r.settle()
			testkit.Await(t, "the engine is free", func() bool { return r.engineHas(0) })
			testkit.Eventually(t, func() string { // the last reading of the engine's gauges may still count a request
				if q := r.servers[0].Status().Queues[0]; q.Outcomes["evicted"] != 2 || q.Evicting != 0 || q.InFlight != 0 {
					return fmt.Sprintf("afterwards: %+v", q)
				}
				return ""
			})
			st := r.servers[0].Status()
			if h := st.Endpoints[0].Health; h.State != "healthy" {
				t.Errorf("the engine is %s: %+v", h.State, h)
			}
		})
	}
}

// engineHas reports whether the first engine runs n requests and every replica counts n.
func (r *rig) engineHas(n int) bool {
	got := 0
	for _, s := range r.fleet.Engines()[0].Stats() {
		got += s.Engine.Running + s.Engine.Waiting
	}
	return got == n
}

// long requests an answer of the given number of tokens.
func (r *rig) long(objective string, stream bool, tokens int) <-chan evicted {
	out := make(chan evicted, 1)
	go func() {
		a := evicted{}
		defer func() { out <- a }()
		body := fmt.Sprintf(`{"model":%q,"prompt":"once upon a time","max_tokens":%d,"ignore_eos":true,"stream":%v}`, vocab.Name, tokens, stream)
		req, err := http.NewRequest(http.MethodPost, r.client.URL+"/v1/completions", strings.NewReader(body))
		if err != nil {
			a.err = err
			return
		}
		if objective != "" {
			req.Header.Set("X-Gateway-Inference-Objective", objective)
		}
		resp, err := r.client.HTTP.Do(req)
		if err != nil {
			a.err = err
			return
		}
		defer resp.Body.Close()
		a.status, a.drop = resp.StatusCode, resp.Header.Get("x-llm-d-request-dropped-reason")
		a.body, a.err = io.ReadAll(resp.Body)
	}()
	return out
}
