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

	engines, url := behindEnvoy(t, binary, config, []string{"{example.com/tier: spot}", "{example.com/tier: reserved}", "{example.com/tier: draining}"})
	for i := range 12 {
		complete(t, url, i, nil)
	}
	for i, e := range engines.Engines() {
		got := finished(e)
		if want := map[bool]int{true: 12}[i == 1]; got != want {
			t.Errorf("engine %d served %d requests, want %d", i, got, want)
		}
	}
}

// behindEnvoy starts an engine for each set of labels, one replica of the picker, and a real Envoy. It
// returns the engines and the URL of Envoy.
func behindEnvoy(t *testing.T, binary, config string, labels []string) (*fleet.Fleet, string) {
	t.Helper()
	dir := t.TempDir()
	engines, err := fleet.Open(fleet.Options{Engines: len(labels), Engine: sim.Options{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engines.Close() })
	addresses := labrig.Addresses(engines)
	var list strings.Builder
	list.WriteString("endpoints:\n")
	for i, set := range labels {
		host, port, _ := strings.Cut(addresses[i], ":")
		fmt.Fprintf(&list, "- {name: engine-%d, address: %s, port: %s, labels: %s}\n", i, host, port, set)
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
	return engines, url
}

// complete sends a completion with headers and requires status 200.
func complete(t *testing.T, url string, i int, headers map[string]string) {
	t.Helper()
	body := fmt.Sprintf(`{"model":%q,"prompt":"request %d","max_tokens":1}`, vocab.Name, i)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("request %d: status %d, want 200", i, resp.StatusCode)
	}
}

// finished returns how many requests an engine served.
func finished(e *sim.Engine) (n int) {
	for _, rank := range e.Stats() {
		n += int(rank.Engine.Finished)
	}
	return n
}
