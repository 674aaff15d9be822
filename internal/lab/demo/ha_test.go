package demo

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// program builds grapevine and returns its path.
func program(t *testing.T) string {
	t.Helper()
	return filepath.Join(testkit.Build(t, "grapevine"), "grapevine")
}

// TestReplicasComeAndGo checks that no request of a steady load fails while replicas behind a real
// Envoy are killed, restarted, rolled, given another key, and all killed.
func TestReplicasComeAndGo(t *testing.T) {
	t.Parallel()
	self := program(t)
	var out bytes.Buffer
	s, err := RunHA(t.Context(), Options{
		Options: rig.Options{Envoy: parts.Envoy(t), Self: self, Engines: 12, Replicas: 3, Share: "partitioned"}, Out: &out, Step: time.Second,
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	s.Write(&out)
	if !s.OK() {
		t.Errorf("%d requests failed, the last with: %v\n%s", s.Failed(), s.LastError, out.String())
	}
	waited := regexp.MustCompile("anew|rolled|changed") // steps that end when all replicas have joined
	for _, st := range s.Steps {
		if waited.MatchString(st.Name) && !strings.Contains(st.Members, "2 other members") {
			t.Errorf("after %q: %s", st.Name, st.Members)
		}
	}
}
