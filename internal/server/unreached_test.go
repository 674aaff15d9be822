package server

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestUnreachedEndpoints: an endpoint is neither up nor healthy until the replica has received a
// response or event from it.
func TestUnreachedEndpoints(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 1})
	b, err := os.ReadFile(o.Endpoints)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "endpoints.yaml")
	// An address of a network that does not exist: connections are neither accepted nor refused.
	if err := os.WriteFile(list, append(b, []byte("\n- {name: nowhere, address: 192.0.2.1, port: 8000}\n")...), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Endpoints = list
	s := open(t, o)
	seen := map[string]map[string]bool{}
	testkit.Await(t, "the engine that answers is healthy", func() bool {
		well := false
		for _, e := range s.Status().Endpoints {
			if seen[e.Name] == nil {
				seen[e.Name] = map[string]bool{}
			}
			seen[e.Name][e.Health.State] = true
			if e.Up != (e.Health.State == "healthy") && e.Health.State != "suspect" && e.Health.State != "out" {
				t.Fatalf("%s: up %v, state %s", e.Name, e.Up, e.Health.State)
			}
			well = well || e.Name != "nowhere" && e.Health.State == "healthy"
		}
		return well
	})
	if seen["nowhere"]["healthy"] || len(seen["nowhere"]) == 0 {
		t.Errorf("states of an endpoint that was never reached: %v", seen["nowhere"])
	}
}
