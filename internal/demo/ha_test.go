package demo

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

// Replicas behind a real Envoy are killed, started anew, rolled, given another
// key and all killed; no request of a steady load fails.
func TestReplicasComeAndGo(t *testing.T) {
	self := filepath.Join(t.TempDir(), "grapevine")
	build := exec.Command("go", "build", "-o", self, "./cmd/grapevine")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	var out bytes.Buffer
	s, err := RunHA(t.Context(), Options{
		Envoy: parts.Envoy(t), Self: self, Out: &out, Engines: 12, Replicas: 3, Step: time.Second, Share: "partitioned",
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	s.Write(&out)
	if !s.OK() {
		t.Errorf("%d requests failed, the last with: %v\n%s", s.Failed(), s.LastError, out.String())
	}
	for _, st := range s.Steps {
		if !strings.Contains(st.Name, "killed") && !strings.Contains(st.Members, "2 other members") {
			t.Errorf("after %q: %s", st.Name, st.Members)
		}
	}
}
