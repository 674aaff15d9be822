//go:build proxies

package proxies

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/pd/sidecar"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestClientOfPair makes each kind of call of the openai and anthropic packages through Envoy, a replica, a
// sidecar and a pair of simulated engines. Each result equals the result of one engine alone.
func TestClientOfPair(t *testing.T) {
	python := filepath.Join(parts.Cache(), "clients", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Fatalf("%v: run `make test-proxies`", err)
	}
	dir := t.TempDir()
	list, model, config := filepath.Join(dir, "endpoints.yaml"), filepath.Join(dir, "model"), filepath.Join(dir, "config.yaml")
	if err := vocab.New().WriteModel(model); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(testkit.SplitAll), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := fleet.Open(fleet.Options{Engines: 3, EndpointsFile: list, Engine: sim.Options{Speed: 50, Events: &sim.EventOptions{}, PD: &sim.PDOptions{}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	prefill, decode, alone := f.Engines()[0], f.Engines()[1], f.Engines()[2]
	s, err := sidecar.New(sidecar.Options{Engine: "http://" + decode.Addr(), Targets: sidecar.Listed{prefill.Addr(): endpoint.RolePrefill}})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(s)
	t.Cleanup(front.Close)
	at := front.Listener.Addr().String()
	pair := f.Endpoints()[:2]
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	pair[0].Labels[endpoint.LabelRole], pair[1].Labels[endpoint.LabelRole] = "prefill", "decode"
	if pair[1].Port, err = strconv.Atoi(port); err != nil {
		t.Fatal(err)
	}
	raw, err := yaml.Marshal(map[string]any{"endpoints": pair})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	replica, err := server.Open(server.Options{
		Name: "replica", Listen: "127.0.0.1:0", Health: "-", Admin: "127.0.0.1:0", Endpoints: list, Config: config, Linger: -1, AllowModeOverride: true,
		Models: []server.ModelOptions{{Name: vocab.Name, Path: model}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = replica.Stop(t.Context()) })
	testkit.Await(t, "the replica is ready", func() bool { return replica.Status().State == "ready" })
	conf, err := envoyconf.Render(envoyconf.Params{
		Kind: envoyconf.Resilient, NetworkTimeout: testkit.NetworkTimeout, Listen: "127.0.0.1:0", Admin: "127.0.0.1:0",
		ExtProc: []string{replica.ExtProcAddr().String()}, Endpoints: []string{at},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("ENVOY", parts.Envoy(t))
	envoy := "http://" + testkit.StartEnvoy(t, conf).Addr("inference")
	testkit.Await(t, "Envoy passes requests on", func() bool {
		resp, err := http.Get(envoy + "/v1/models")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	out, err := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "pair.py"), vocab.Name, envoy, "http://"+alone.Addr()).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	if got := prefill.Transfers().Read; got < 25 {
		t.Errorf("%d KV transfers were read, want the prompts of most calls", got)
	}
}
