package server

import (
	"net/netip"
	"testing"

	"github.com/grapevine-epp/grapevine/pd"
	"github.com/grapevine-epp/grapevine/picker/config"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestCompleted: an endpoint's own addresses for events and metrics take precedence over the
// configuration.
func TestCompleted(t *testing.T) {
	c, problems := config.Parse("f", []byte(`apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: precise-prefix-cache-producer, parameters: {kvEventsConfig: {topicFilter: "kv@", podDiscoveryConfig: {socketPort: 5556, replaySocketPort: 5558}}}}
- {type: metrics-data-source, parameters: {port: 9400, path: /gauges}}
`), config.Options{Table: pd.Table()})
	if c == nil {
		t.Fatal(problems)
	}
	own := endpoint.Events{Port: 1, Ranks: 2}
	specs := []endpoint.Spec{
		{Addr: netip.MustParseAddrPort("10.0.0.1:8000")},
		{Addr: netip.MustParseAddrPort("[fd00::2]:8000"), Events: own, Metrics: "http://elsewhere/metrics"},
	}
	got := completed(specs, c)
	if want := (endpoint.Events{Port: 5556, ReplayPort: 5558, Topic: "kv@", Ranks: 1}); got[0].Events != want || got[1].Events != own {
		t.Errorf("events %+v and %+v", got[0].Events, got[1].Events)
	}
	if got[0].Metrics != "http://10.0.0.1:9400/gauges" || got[1].Metrics != "http://elsewhere/metrics" {
		t.Errorf("metrics %q and %q", got[0].Metrics, got[1].Metrics)
	}
	if specs[0].Metrics != "" {
		t.Error("the source's own list was changed")
	}
	if plain := completed(specs, config.Default(config.Options{})); &plain[0] != &specs[0] {
		t.Error("an empty configuration changes nothing")
	}
}

// TestPagesOfClusters: labels of a cluster say where its metrics page is.
func TestPagesOfClusters(t *testing.T) {
	c, problems := config.Parse("f", []byte(`apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: multicluster-metrics-data-source}
`), config.Options{Table: pd.Table()})
	if c == nil {
		t.Fatal(problems)
	}
	at := netip.MustParseAddrPort("10.0.0.1:443")
	labels := map[string]string{endpoint.LabelMetricsAddress: "pool.example.com"}
	got := completed([]endpoint.Spec{
		{Addr: at}, {Addr: at, Labels: labels},
		{Addr: at, Labels: map[string]string{endpoint.LabelMetricsAddress: "fd00::1", endpoint.LabelMetricsPort: "9090"}},
		{Addr: at, Labels: labels, Metrics: "http://own/metrics"},
	}, c)
	for i, want := range []string{"", "https://pool.example.com:443/metrics", "https://[fd00::1]:9090/metrics", "http://own/metrics"} {
		if got[i].Metrics != want {
			t.Errorf("endpoint %d: page %q, want %q", i, got[i].Metrics, want)
		}
	}
}
