package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

const activeRequests = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: active-request-scorer}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: active-request-scorer}]}]
`

// TestExplainUnderAnotherConfiguration repeats a stored decision of a running replica.
func TestExplainUnderAnotherConfiguration(t *testing.T) {
	s := openSession(t)
	s.add()
	r := s.replicas[0]
	testkit.Await(t, "ready", func() bool { return r.Status().State == "ready" })
	file := filepath.Join(t.TempDir(), "active.yaml")
	if err := os.WriteFile(file, []byte(activeRequests), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"first", "second"} { // the first one stays in flight
		end, _ := placeNamed(t, r.ExtProcAddr().String(), id, vocab.Name)
		t.Cleanup(end)
	}
	for args, want := range map[string][]string{
		"explain --request-id second --config " + file:   {"request   second ", "the stored decision chose", "scorer ×1", "load, gauges and cached tokens are those of the stored decision"},
		"explain --last 1 --config " + file + " -o json": {`"decided": "127.0.0.1:`, `"scorer": "active-request-scorer"`},
	} {
		got := screen(t, r, strings.Fields(args)...)
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: no %q in\n%s", args, part, got)
			}
		}
	}
}
