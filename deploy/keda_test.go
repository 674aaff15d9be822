package deploy_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// scaledObject has the fields of keda.sh/v1alpha1 that the example uses.
type scaledObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name, Namespace string
	} `json:"metadata"`
	Spec struct {
		ScaleTargetRef  struct{ Name string } `json:"scaleTargetRef"`
		MinReplicaCount int                   `json:"minReplicaCount"`
		MaxReplicaCount int                   `json:"maxReplicaCount"`
		PollingInterval int                   `json:"pollingInterval"`
		Advanced        struct {
			HorizontalPodAutoscalerConfig struct {
				Behavior map[string]struct {
					StabilizationWindowSeconds int `json:"stabilizationWindowSeconds"`
					Policies                   []struct {
						Type          string `json:"type"`
						Value         int    `json:"value"`
						PeriodSeconds int    `json:"periodSeconds"`
					} `json:"policies"`
				} `json:"behavior"`
			} `json:"horizontalPodAutoscalerConfig"`
		} `json:"advanced"`
		Triggers []struct {
			Type       string            `json:"type"`
			MetricType string            `json:"metricType"`
			Metadata   map[string]string `json:"metadata"` // KEDA accepts strings only
		} `json:"triggers"`
	} `json:"spec"`
}

// TestScalingExample checks the ScaledObject: its fields are known, its query takes the maximum of a
// gauge that exists with these labels, and an unknown number does not scale the engines down.
func TestScalingExample(t *testing.T) {
	text, err := os.ReadFile("examples/keda.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var o scaledObject
	if err := yaml.UnmarshalStrict(text, &o); err != nil {
		t.Fatal(err)
	}
	if o.APIVersion != "keda.sh/v1alpha1" || o.Kind != "ScaledObject" || o.Spec.ScaleTargetRef.Name == "" || len(o.Spec.Triggers) != 1 {
		t.Fatalf("%+v", o)
	}
	if o.Spec.MinReplicaCount < 1 || o.Spec.MaxReplicaCount <= o.Spec.MinReplicaCount {
		t.Errorf("%d to %d replicas, want 1 or more", o.Spec.MinReplicaCount, o.Spec.MaxReplicaCount)
	}
	trigger := o.Spec.Triggers[0]
	if trigger.Type != "prometheus" || trigger.MetricType != "AverageValue" || trigger.Metadata["threshold"] != "1" || trigger.Metadata["ignoreNullValues"] != "false" || trigger.Metadata["serverAddress"] == "" {
		t.Errorf("trigger %+v", trigger)
	}
	query := regexp.MustCompile(`^max\((grapevine_[a-z_]+)\{namespace="llm",(model)="[^"]+"\}\)$`).FindStringSubmatch(trigger.Metadata["query"])
	if query == nil {
		t.Fatalf("query %q does not take the maximum of a gauge", trigger.Metadata["query"])
	}
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	if row := "| `" + query[1] + "` | gauge | " + query[2] + " |"; !strings.Contains(string(page), row) {
		t.Errorf("docs/metrics.md has no row %q", row)
	}
}
