package deploy_test

import (
	"os"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestValues holds the chart's values and their schema to each other.
func TestValues(t *testing.T) {
	var values, schema map[string]any
	for path, into := range map[string]*map[string]any{
		"helm/grapevine/values.yaml": &values, "helm/grapevine/values.schema.json": &schema,
	} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(b, into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	compare(t, "", values, schema)
}

func compare(t *testing.T, at string, values, schema map[string]any) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	if properties == nil { // free
		return
	}
	if schema["additionalProperties"] != false {
		t.Errorf("the schema lets anything into %q", at)
	}
	for name, v := range values {
		p, ok := properties[name].(map[string]any)
		if !ok {
			t.Errorf("the schema does not have %s.%s", at, name)
			continue
		}
		if inner, ok := v.(map[string]any); ok {
			compare(t, at+"."+name, inner, p)
		}
	}
	for name := range properties {
		if _, ok := values[name]; !ok && name != "global" && at != ".resources" && at != ".standalone.envoy.resources" {
			t.Errorf("values.yaml does not show %s.%s", at, name)
		}
	}
}
