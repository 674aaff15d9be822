package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/picker/flow/gate"
)

// fairnessFrom reaches the gate in order, with header names in lower case, followed by
// agent-identity's headers.
func TestFairnessFrom(t *testing.T) {
	text := "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [flowControl]\nplugins: [{type: queue-scorer}, {type: agent-identity, parameters: {additionalSessionHeaders: [X-Own]}}]\n" +
		"flowControl: {fairnessFrom: [certificate, 'header:X-Agent-Id', model]}\n"
	c, problems := Parse("f", []byte(text), Options{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := []gate.Source{
		gate.FromCertificate, "header:x-agent-id", gate.FromModel,
		"header:x-own", "header:x-claude-code-session-id", "header:x-session-affinity", "header:session-id", "header:session_id",
	}
	if d := cmp.Diff(want, c.Flow.Gate().Identity); d != "" {
		t.Error(d)
	}
}
