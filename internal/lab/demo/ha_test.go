package demo

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

// program builds grapevine, once for all tests, and returns its path.
func program(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		dir, err := os.MkdirTemp("", "grapevine-test-")
		if err != nil {
			built.err = err
			return
		}
		built.path = filepath.Join(dir, "grapevine")
		cmd := exec.Command("go", "build", "-o", built.path, "./cmd/grapevine")
		cmd.Dir = "../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

var built struct {
	once sync.Once
	path string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.path != "" {
		os.RemoveAll(filepath.Dir(built.path))
	}
	os.Exit(code)
}

// Replicas behind a real Envoy are killed, started anew, rolled, given another
// key and all killed; no request of a steady load fails.
func TestReplicasComeAndGo(t *testing.T) {
	t.Parallel()
	self := program(t)
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
	waited := regexp.MustCompile("anew|rolled|changed") // steps that end when all have joined
	for _, st := range s.Steps {
		if waited.MatchString(st.Name) && !strings.Contains(st.Members, "2 other members") {
			t.Errorf("after %q: %s", st.Name, st.Members)
		}
	}
}
