package config

import (
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

// TestClusterPages: the page of a cluster's picker has means of its pool.
func TestClusterPages(t *testing.T) {
	c, problems := Parse("f", []byte(`apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {type: multicluster-metrics-extractor, parameters: {queueSizeMetric: "queue{pool=a}"}}
- {type: multicluster-queue-scorer}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: multicluster-queue-scorer}]}
`), Options{})
	if c == nil || len(c.Notes) > 0 {
		t.Fatal(problems, c)
	}
	page := "queue{pool=\"b\"} 9\nqueue{pool=\"a\"} 2.5\nllm_d_epp_average_kv_cache_utilization{name=\"x\"} 0.25\n"
	got, err := c.Metrics.Dialects.Read(scrape.NewScanner(), strings.NewReader(page), &endpoint.Endpoint{})
	if err != nil {
		t.Fatal(err)
	}
	custom := got.Gauges.Custom
	if custom["llm-d.ai/multicluster-queue-size"] != 2.5 || custom["llm-d.ai/multicluster-kv-cache-utilization"] != .25 || got.Gauges.KVUse != .25 {
		t.Errorf("gauges %+v", got.Gauges)
	}
}

// TestFiltersOfTrees: a tree applies filters that are listed before it.
func TestFiltersOfTrees(t *testing.T) {
	head := "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins:\n"
	tail := "schedulingProfiles:\n- {name: default, plugins: [{pluginRef: t}]}\n"
	for list, want := range map[string]string{
		"- {type: least-queue-filter}\n- {type: decision-tree-filter, name: t, parameters: {current: {pluginRef: least-queue-filter}}}\n":                                     "",
		"- {type: decision-tree-filter, name: t, parameters: {current: {pluginRef: t}}}\n":                                                                                    "filter t is not ready",
		"- {type: queue-scorer}\n- {type: decision-tree-filter, name: t, parameters: {current: {pluginRef: queue-scorer}}}\n":                                                 "queue-scorer is a scorer, not a filter",
		"- {type: decision-tree-filter, name: t, parameters: {current: {pluginRef: least}}}\n":                                                                                `there is no plugin named "least"`,
		"- {type: topology-affinity-filter, name: t, parameters: {topologyProducerName: other}}\n":                                                                            `note: no topology-extractor is named "other"`,
		"- {type: topology-extractor, name: other}\n- {type: topology-affinity-filter, name: t, parameters: {topologyProducerName: other}}\n":                                 "",
		"- {type: multicluster-approx-prefix-cache-producer}\n- {type: multicluster-prefix-cache-scorer, name: t}\n":                                                          "",
		"- {type: disaggregatedset-rollout-screener, parameters: {scope: {labelSelector: a=b}, revisionGating: {mode: disabled}}}\n- {type: least-queue-filter, name: t}\n":   "note: revisions are counted in this pool's endpoints",
		"- {type: disaggregatedset-rollout-screener, parameters: {scope: {labelSelector: \"a in b\"}, revisionGating: {mode: sum}}}\n- {type: least-queue-filter, name: t}\n": "scope.labelSelector is no label selector",
	} {
		c, problems := Parse("f", []byte(head+list+tail), Options{})
		var got []string
		for _, p := range problems {
			got = append(got, p.String())
		}
		if c != nil {
			for _, n := range c.Notes {
				got = append(got, "note: "+strings.TrimPrefix(n.String()[strings.Index(n.String(), ": plugin ")+9:], "t: "))
			}
		}
		text := strings.Join(got, "\n")
		if want == "" && text != "" || !strings.Contains(strings.ReplaceAll(text, "disaggregatedset-rollout-screener: ", ""), want) {
			t.Errorf("%s\n%s\nwant %q", list, text, want)
		}
	}
}
