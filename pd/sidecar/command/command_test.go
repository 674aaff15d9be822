package command

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/grapevine-epp/grapevine/pd/sidecar"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestListedRoles: engines of the endpoints file may be called for what their label says,
// those without a label and those of --allow for everything.
func TestListedRoles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	const text = `endpoints:
- {name: p, address: 10.0.0.1, port: 8000, labels: {llm-d.ai/role: prefill}}
- {name: d, address: 10.0.0.2, port: 8000, labels: {llm-d.ai/role: decode}}
- {name: e, address: 10.0.0.3, port: 8000, labels: {llm-d.ai/role: encode}}
- {name: x, address: "fd00::4", port: 8000}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f := flags{endpoints: file, allow: []string{"10.0.0.2:8000", "10.0.0.9:1"}}
	got, err := f.listed()
	want := sidecar.Listed{
		"10.0.0.1:8000": endpoint.RolePrefill, "10.0.0.3:8000": endpoint.RoleEncode, "[fd00::4]:8000": sidecar.AnyRole,
		"10.0.0.2:8000": sidecar.AnyRole, "10.0.0.9:1": sidecar.AnyRole,
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	f = flags{endpoints: file}
	if got, err = f.listed(); err != nil || got["10.0.0.2:8000"] != endpoint.RoleDecode {
		t.Errorf("a decode engine is listed for %d, %v", got["10.0.0.2:8000"], err)
	}
}
