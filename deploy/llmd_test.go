package deploy_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// routerValues are values of llm-d's router charts, each with an example of its type. The source is
// config/charts/routerlib of llm-d-router at commit 17a368a (November 2026, after v0.11.0): values.yaml
// and the values that its templates read.
const routerValues = `router:
  epp:
    replicas: 1
    image: {registry: text, repository: text, tag: text, pullPolicy: Always}
    deploymentStrategy:
      type: RollingUpdate
      rollingUpdate: {maxUnavailable: 1, maxSurge: 0}
    flags: {}
    env: []
    pluginsConfigFile: text
    resources:
      requests: {cpu: "8", memory: 8Gi}
      limits: {memory: 16Gi}
  monitoring: {interval: 10s, prometheus: {enabled: false, auth: {enabled: true, secretName: text}}}
  tracing: {enabled: false, otelExporterEndpoint: text}
  tokenizer: {enabled: false}
  latencyPredictor: {enabled: false}
`

// TestRouterValues: examples/llm-d/values.yaml sets only values that llm-d's charts read, with their
// types, and replaces the image.
func TestRouterValues(t *testing.T) {
	text, err := os.ReadFile("examples/llm-d/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var have, known map[string]any
	if err := yaml.UnmarshalStrict(text, &have); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(routerValues), &known); err != nil {
		t.Fatal(err)
	}
	faults := unknownValues("", have, known)
	if len(faults) > 0 {
		t.Errorf("values that the charts do not have: %q", faults)
	}
	image := have["router"].(map[string]any)["epp"].(map[string]any)["image"]
	if got := fmt.Sprint(image); got != "map[pullPolicy:IfNotPresent registry:REGISTRY repository:grapevine tag:TAG]" {
		t.Errorf("image %s", got)
	}
	for _, wrong := range []string{"router: {epp: {image: {hub: x}}}", "router: {epp: {replicas: three}}", "epp: {replicas: 1}"} {
		var values map[string]any
		if err := yaml.Unmarshal([]byte(wrong), &values); err != nil {
			t.Fatal(err)
		}
		if len(unknownValues("", values, known)) == 0 {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

// unknownValues returns the paths of have that known lacks, or has with another type.
func unknownValues(path string, have, known map[string]any) (faults []string) {
	for name, v := range have {
		at := path + "." + name
		k, ok := known[name]
		inner, isMap := v.(map[string]any)
		within, wantMap := k.(map[string]any)
		switch {
		case !ok, isMap != wantMap, !isMap && fmt.Sprintf("%T", v) != fmt.Sprintf("%T", k):
			faults = append(faults, at)
		case isMap:
			faults = append(faults, unknownValues(at, inner, within)...)
		}
	}
	slices.Sort(faults)
	return faults
}
