package server

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/endpoint/saved"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

// gaugeScorers has one scorer for each gauge.
const gaugeScorers = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: core-metrics-extractor
  parameters:
    engineConfigs:
    - {name: vllm, customMetrics: [{attributeKey: heat, metricSpec: gpu_temperature, combine: max}]}
- type: queue-scorer
- type: running-requests-size-scorer
- type: kv-cache-utilization-scorer
- {type: endpoint-attribute-scorer, name: cool, parameters: {attributeKey: heat, algorithm: {type: linear_lower_is_better}}}
- {type: expression-scorer, name: rule, parameters: {expression: 'load.gauges["heat"] / 100.0'}}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 1}
  - {pluginRef: running-requests-size-scorer, weight: 1}
  - {pluginRef: kv-cache-utilization-scorer, weight: 1}
  - {pluginRef: cool, weight: 1}
  - {pluginRef: rule, weight: 1}
`

// TestGaugesEverywhere: each gauge of an engine's page reaches the scores, the explanation, the status
// and a pool restored from it. A new field of gauge.Values needs a value here.
func TestGaugesEverywhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "endpoints.yaml")
	if err := os.WriteFile(path, []byte("endpoints:\n- {name: one, address: 127.0.0.1, port: 9}\n- {name: two, address: 127.0.0.2, port: 9}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, Options{Endpoints: path, ConfigText: gaugeScorers, Listen: "127.0.0.1:0", Health: "-", Admin: "127.0.0.1:0", Linger: -1, Secret: "s"})
	testkit.Await(t, "ready", func() bool { return s.Status().State == "ready" })

	now := time.Now()
	want := []gauge.Values{
		{Waiting: 3, Running: 5, KVUse: .25, Custom: map[string]float64{"heat": 70}},
		{Waiting: 1, Running: 9, KVUse: .75, Custom: map[string]float64{"heat": 40}},
	}
	for i, page := range []string{
		"vllm:num_requests_waiting 3\nvllm:num_requests_running 5\nvllm:kv_cache_usage_perc 0.25\ngpu_temperature{card=\"0\"} 70\ngpu_temperature{card=\"1\"} 60\n",
		"vllm:num_requests_waiting 1\nvllm:num_requests_running 9\nvllm:kv_cache_usage_perc 0.75\ngpu_temperature 40\n",
	} {
		p, err := s.config.current().Metrics.Dialects.Read(scrape.NewScanner(), strings.NewReader(page), s.pool.Snapshot().Endpoints[i])
		if err != nil {
			t.Fatal(err)
		}
		s.pool.Snapshot().Endpoints[i].SetGauges(p.Sample(now))
		v := reflect.ValueOf(want[i])
		for f := range v.NumField() {
			if v.Field(f).IsZero() {
				t.Errorf("this test sets no %s", v.Type().Field(f).Name)
			}
		}
	}

	code, e := dry(t, s, "?path=/v1/completions", `{"model":"m","prompt":"Hello"}`)
	if code != 200 || len(e.Candidates) != 2 || len(e.Profiles) != 1 {
		t.Fatalf("%d %+v", code, e)
	}
	scores := map[string][]float64{}
	for i, c := range e.Candidates {
		at := slices.IndexFunc(s.pool.Snapshot().Endpoints, func(ep *endpoint.Endpoint) bool { return ep.Address == c.Endpoint })
		if diff := cmp.Diff(want[at], c.Load.Values); diff != "" {
			t.Errorf("explanation of %s (-want +got):\n%s", c.Endpoint, diff)
		}
		for _, score := range e.Profiles[0].Rows[i].Scores {
			if scores[score.Scorer] == nil {
				scores[score.Scorer] = make([]float64, 2)
			}
			scores[score.Scorer][at] = score.Raw
		}
	}
	if diff := cmp.Diff(map[string][]float64{
		"queue-scorer": {0, 1}, "running-requests-size-scorer": {1, 0}, "kv-cache-utilization-scorer": {.75, .25}, "cool": {0, 1}, "rule": {.7, .4},
	}, scores); diff != "" {
		t.Errorf("scores (-want +got):\n%s", diff)
	}

	for i, status := range s.Status().Endpoints {
		if diff := cmp.Diff(want[i], status.Values); diff != "" {
			t.Errorf("status of %s (-want +got):\n%s", status.Address, diff)
		}
		text, err := json.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		var read saved.Endpoint
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		spec, _ := read.Spec()
		pool := endpoint.NewPool(endpoint.PoolOptions{})
		pool.Set([]endpoint.Spec{spec})
		read.Restore(pool, pool.Snapshot().Endpoints[0], now)
		if diff := cmp.Diff(want[i], pool.Snapshot().Endpoints[0].Gauges().Values); diff != "" {
			t.Errorf("restored %s (-want +got):\n%s", status.Address, diff)
		}
	}
}
