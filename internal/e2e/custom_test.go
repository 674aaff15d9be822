package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	labrig "github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

// TestCustomPicker builds the example module docs/examples/custom-picker, which is outside this
// module, and checks behind a real Envoy that its scorer and its filter are applied.
func TestCustomPicker(t *testing.T) {
	const example = "../../docs/examples/custom-picker"
	dir := t.TempDir()
	binary := filepath.Join(dir, "custom-picker")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir = example
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	config, err := filepath.Abs(filepath.Join(example, "epp.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	engines, err := fleet.Open(fleet.Options{Engines: 3, Engine: sim.Options{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engines.Close() })
	addresses := labrig.Addresses(engines)
	var list strings.Builder
	list.WriteString("endpoints:\n")
	for i, tier := range []string{"spot", "reserved", "draining"} {
		host, port, _ := strings.Cut(addresses[i], ":")
		fmt.Fprintf(&list, "- {name: %s, address: %s, port: %s, labels: {example.com/tier: %s}}\n", tier, host, port, tier)
	}

	r, err := labrig.New(labrig.Options{Envoy: parts.Envoy(t), Self: binary, Replicas: 1}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "endpoints.yaml"), []byte(list.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	replicas, err := r.StartReplicas(t.Context(), func(int) []string { return []string{"--config", config} })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { labrig.StopReplicas(t.Context(), replicas) })
	envoy, url, err := r.StartEnvoy(t.Context(), "envoy", envoyconf.Params{ExtProc: labrig.Pickers(replicas), Endpoints: addresses})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(envoy.Kill)

	for i := range 12 {
		body := fmt.Sprintf(`{"model":%q,"prompt":"request %d","max_tokens":1}`, vocab.Name, i)
		resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("request %d: status %d, want 200", i, resp.StatusCode)
		}
	}
	for i, e := range engines.Engines() {
		got := 0
		for _, rank := range e.Stats() {
			got += int(rank.Engine.Finished)
		}
		if want := map[bool]int{true: 12}[i == 1]; got != want {
			t.Errorf("engine %d served %d requests, want %d", i, got, want)
		}
	}
}
