package deploy_test

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestTracingExample checks the collector of deploy/examples/tracing against the address on the page
// about traces: its Service has the port, the collector listens on it, and passes spans on to a
// Service of the same file.
func TestTracingExample(t *testing.T) {
	text, err := os.ReadFile("examples/tracing/collector.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Kind     string
		Metadata struct{ Name string }
		Data     map[string]string
		Spec     struct {
			Ports []struct{ Port int }
		}
	}
	services, collector := map[string][]int{}, ""
	for _, doc := range strings.Split(string(text), "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		switch o.Kind {
		case "Service":
			for _, p := range o.Spec.Ports {
				services[o.Metadata.Name] = append(services[o.Metadata.Name], p.Port)
			}
		case "ConfigMap":
			collector = o.Data["config.yaml"]
		}
	}
	var c struct {
		Receivers map[string]struct {
			Protocols map[string]struct{ Endpoint string }
		}
		Exporters map[string]struct{ Endpoint string }
		Service   struct {
			Pipelines map[string]struct{ Receivers, Processors, Exporters []string }
		}
	}
	if err := yaml.UnmarshalStrict([]byte(withoutProcessors(collector)), &c); err != nil {
		t.Fatal(err)
	}
	if got := c.Receivers["otlp"].Protocols["grpc"].Endpoint; got != "0.0.0.0:4317" {
		t.Errorf("the collector receives on %q, want 0.0.0.0:4317", got)
	}
	for _, e := range c.Service.Pipelines["traces"].Exporters {
		name, _, _ := strings.Cut(c.Exporters[e].Endpoint, ":")
		if services[name] == nil {
			t.Errorf("exporter %s sends to %q, which is no Service of the example", e, c.Exporters[e].Endpoint)
		}
	}
	page, err := os.ReadFile("../docs/tasks/trace.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := services["otel-collector"]; len(want) == 0 || want[0] != 4317 || !strings.Contains(string(page), "tracing.endpoint=http://otel-collector:4317") {
		t.Errorf("the page does not name the collector's Service and its port %v", want)
	}
}

// withoutProcessors removes the parts of a collector's configuration that this test does not read.
func withoutProcessors(config string) string {
	var m map[string]any
	if yaml.Unmarshal([]byte(config), &m) != nil {
		return config
	}
	delete(m, "processors")
	for _, e := range m["exporters"].(map[string]any) {
		delete(e.(map[string]any), "tls")
	}
	b, _ := yaml.Marshal(m) // was YAML before
	return string(b)
}
