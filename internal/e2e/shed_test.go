package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

const (
	batchOnly = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
objectives:
- {name: batch, priority: -1}
`
	twoEach = batchOnly + `plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 2}}
saturationDetector: {pluginRef: concurrency-detector}
`
)

// config writes a configuration file and returns a function that makes replicas use it.
func config(t *testing.T, text string) func(*server.Options) {
	t.Helper()
	file := configFile(t, text)
	return func(o *server.Options) { o.Config = file }
}

// configFile writes a configuration file.
func configFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// ask posts a completion with an objective and returns status and drop reason.
func (r *rig) ask(objective string) (status int, drop string) { return r.askAs("", objective) }

// askAs is ask for a tenant.
func (r *rig) askAs(tenant, objective string) (status int, drop string) {
	r.t.Helper()
	body := fmt.Sprintf(`{"model":%q,"prompt":"once upon a time","max_tokens":4}`, vocab.Name)
	req, err := http.NewRequest(http.MethodPost, r.client.URL+"/v1/completions", strings.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return 0, ""
	}
	if objective != "" {
		req.Header.Set("X-Gateway-Inference-Objective", objective)
	}
	if tenant != "" {
		req.Header.Set("X-Llm-D-Inference-Fairness-Id", tenant)
	}
	resp, err := r.client.HTTP.Do(req)
	if err != nil {
		r.t.Error(err)
		return 0, ""
	}
	resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("x-llm-d-request-dropped-reason")
}

// TestShed checks that sheddable requests are refused while every engine is saturated, and that
// others wait.
func TestShed(t *testing.T) {
	r := open(t, rigOptions{engines: 2, server: config(t, twoEach)})
	for _, e := range r.fleet.Engines() {
		e.Hang(faults.HangEngine)
	}
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if status, drop := r.ask(""); status != http.StatusOK {
				t.Errorf("status %d %q, want 200", status, drop)
			}
		})
	}
	testkit.Await(t, "five requests in flight", func() bool { return r.inFlight(0) == 5 })
	if status, drop := r.ask("batch"); status != http.StatusTooManyRequests || drop != "rejected-saturated" {
		t.Errorf("status %d %q, want 429 and rejected-saturated", status, drop)
	}
	for _, e := range r.fleet.Engines() {
		e.Hang(faults.HangNone)
	}
	wg.Wait()
	r.settle()
	testkit.Await(t, "an idle pool takes it", func() bool {
		status, _ := r.ask("batch")
		return status == http.StatusOK
	})
	r.settle()
}

// TestIdleIsNotSaturated checks that a pool that has been idle refuses no request. A replica that
// the machine stalls for longer than the freshness limit of gauges may refuse for a moment, not
// forever.
func TestIdleIsNotSaturated(t *testing.T) {
	r := open(t, rigOptions{engines: 2, server: config(t, batchOnly)})
	for range 3 {
		testkit.Await(t, "an idle pool serves", func() bool {
			<-time.After(400 * time.Millisecond) // gauges age
			status, drop := r.ask("batch")
			if status != http.StatusOK && status != http.StatusTooManyRequests {
				t.Errorf("status %d %q of an idle pool", status, drop)
			}
			return status == http.StatusOK
		})
	}
	r.settle()
}
