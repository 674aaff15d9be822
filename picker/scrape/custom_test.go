package scrape

import (
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

const customPage = `vllm:num_requests_waiting{engine="0"} 3
vllm:num_requests_waiting{engine="1"} 4
vllm:kv_cache_usage_perc 0.5
gpu_temperature{card="0"} 61
gpu_temperature{card="1"} 70.5
gpu_temperature{card="2"} broken
gpu_temperature_limit 90
balance -2.5
sign --1
sglang:num_queue_reqs 9
`

func custom(t testing.TB, name, spec string, rule Combine) CustomGauge {
	t.Helper()
	s, err := ParseSeries(spec)
	if err != nil {
		t.Fatal(err)
	}
	return CustomGauge{Name: name, Series: s, Combine: rule}
}

// TestCustomGauges: the configured rule combines several series, and gauges of the built-in names are
// read as without custom ones.
func TestCustomGauges(t *testing.T) {
	d := NewDialects("", "", []Dialect{{Name: "vllm", Custom: []CustomGauge{
		custom(t, "first", "gpu_temperature", CombineFirst),
		custom(t, "sum", "gpu_temperature", CombineSum),
		custom(t, "mean", "gpu_temperature", CombineMean),
		custom(t, "max", "gpu_temperature", CombineMax),
		custom(t, "second", "gpu_temperature{card=1}", CombineFirst),
		custom(t, "queue", "vllm:num_requests_waiting", CombineSum),
		custom(t, "negative", "balance", CombineFirst),
		custom(t, "malformed", "sign", CombineFirst),
		custom(t, "absent", "gpu_power", CombineFirst),
	}}})
	want := map[string]float64{"first": 61, "sum": 131.5, "mean": 65.75, "max": 70.5, "second": 70.5, "queue": 7, "negative": -2.5}
	for _, ep := range []*endpoint.Endpoint{labelledEndpoint(nil), labelledEndpoint(map[string]string{endpoint.LabelEngine: "vllm"})} {
		s := NewScanner()
		for range 2 { // nothing is left of the page before
			own, engine := d.of(ep)
			page, err := s.scan(strings.NewReader(customPage), own, engine)
			if err != nil || !maps.Equal(page.Custom, want) {
				t.Fatalf("labels %v: custom gauges %v, %v; want %v", ep.Labels, page.Custom, err, want)
			}
			if page.Waiting != 7 || page.KVUse != .5 || page.Engine != endpoint.EngineVLLM || page.Ranks != 2 {
				t.Fatalf("labels %v: built-in gauges %+v", ep.Labels, page.Gauges)
			}
			if page.Skipped != 5 { // "broken" under four names, and "--1"
				t.Fatalf("%d values were skipped, want 5", page.Skipped)
			}
			if page, err = s.scan(strings.NewReader(customPage), nil, engine); err != nil || page.Custom != nil {
				t.Fatalf("without configuration: custom gauges %v, %v", page.Custom, err)
			}
		}
	}
}

// TestCustomGaugesOfOneEngine: the custom gauges of an entry with other names apply to its endpoints alone, and
// an endpoint of another engine has none.
func TestCustomGaugesOfOneEngine(t *testing.T) {
	d := NewDialects("", "", []Dialect{
		{Name: "mine", Waiting: Series{Name: "vllm:num_requests_waiting"}, Custom: []CustomGauge{custom(t, "hot", "gpu_temperature", CombineMax)}},
		{Name: "vllm", Custom: []CustomGauge{custom(t, "limit", "gpu_temperature_limit", CombineFirst)}},
	})
	for label, want := range map[string]map[string]float64{"mine": {"hot": 70.5}, "vllm": {"limit": 90}, "": {"limit": 90}, "sglang": nil} {
		labels := map[string]string{endpoint.LabelEngine: label}
		if label == "" {
			labels = nil
		}
		own, engine := d.of(labelledEndpoint(labels))
		page, err := NewScanner().scan(strings.NewReader(customPage), own, engine)
		if err != nil || !maps.Equal(page.Custom, want) {
			t.Errorf("engine %q: custom gauges %v, %v; want %v", label, page.Custom, err, want)
		}
	}
}

func labelledEndpoint(labels map[string]string) *endpoint.Endpoint {
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set([]endpoint.Spec{{Name: "e", Addr: netip.MustParseAddrPort("10.0.0.1:8000"), Labels: labels}})
	return pool.Snapshot().Endpoints[0]
}
