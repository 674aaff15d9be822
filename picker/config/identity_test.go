package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/picker/flow/gate"
)

// What fairnessFrom lists reaches the gate in its order, header names in lower case.
func TestFairnessFrom(t *testing.T) {
	text := "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [flowControl]\nplugins: [{type: queue-scorer}]\n" +
		"flowControl: {fairnessFrom: [certificate, 'header:X-Agent-Id', model]}\n"
	c, problems := Parse("f", []byte(text), Options{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if d := cmp.Diff([]gate.Source{gate.FromCertificate, "header:x-agent-id", gate.FromModel}, c.Flow.Gate().Identity); d != "" {
		t.Error(d)
	}
}
