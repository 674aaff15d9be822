//go:build kube

package kube

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/kinds"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

// Loopback addresses of two engines and the picker, and the ports of engines and gateway.
const (
	egEngine, egOther = "127.0.4.1", "127.0.4.2"
	egPicker          = "127.0.4.9"
	egTarget          = 8000
	egListener        = "127.0.0.1:18899"
	egHooks           = "127.0.4.8:19555"
)

// egPool is the pool for the API server and for Envoy Gateway.
const egPool = `{"apiVersion":"inference.networking.k8s.io/v1","kind":"InferencePool","metadata":{"name":"llama","namespace":"prod"},"spec":{"selector":{"matchLabels":{"app":"vllm"}},"targetPorts":[{"number":8000}],"endpointPickerRef":{"name":"llama-epp","port":{"number":9002}}}}`

// egPicks chooses the engine by a header, or by load without the header.
const egPicks = `{"apiVersion":"llm-d.ai/v1alpha1","kind":"EndpointPickerConfig","plugins":[{"type":"header-label-affinity-scorer","parameters":{"headerName":"x-want","labelKey":"name"}},{"type":"queue-scorer"}],` +
	`"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"header-label-affinity-scorer","weight":9},{"pluginRef":"queue-scorer"}]}]}`

// egObjects are the objects that a user creates for Envoy Gateway.
const egObjects = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: eg}
spec:
  controllerName: gateway.envoyproxy.io/gatewayclass-controller
  parametersRef: {group: gateway.envoyproxy.io, kind: EnvoyProxy, name: host, namespace: prod}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyProxy
metadata: {name: host, namespace: prod}
spec: {provider: {type: Host, host: {envoyVersion: 1.40.0}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gateway, namespace: prod}
spec: {gatewayClassName: eg, listeners: [{name: http, protocol: HTTP, port: 18899}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: llm, namespace: prod}
spec:
  parentRefs: [{name: gateway}]
  rules: [{backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: llama}]}]
---
`

// egConfig is the configuration of Envoy Gateway on one host.
const egConfig = `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyGateway
gateway: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
provider:
  type: Custom
  custom:
    resource: {type: File, file: {paths: [DIR/objects.yaml]}}
    infrastructure: {type: Host, host: {configHome: DIR/config, dataHome: DIR/data, stateHome: DIR/state, runtimeDir: DIR/run}}
extensionManager:
  backendResources: [{group: inference.networking.k8s.io, version: v1, kind: InferencePool}]
  hooks:
    xdsTranslator:
      post: [Route, Cluster, Translation]
      translation: {listener: {includeAll: true}, route: {includeAll: true}, cluster: {includeAll: true}, secret: {includeAll: true}}
  service: {ip: {address: 127.0.4.8, port: 19555}}
`

// TestEnvoyGateway checks that Envoy Gateway routes requests for an InferencePool to the endpoint
// that Grapevine chooses from the pods of a real API server. Every kind of request must get the
// engine's own answer.
func TestEnvoyGateway(t *testing.T) {
	harness := os.Getenv("ENVOY_GATEWAY")
	if _, err := os.Stat(harness); err != nil {
		t.Fatalf("Envoy Gateway is missing (%v): make test-envoy-gateway builds it and sets ENVOY_GATEWAY", err)
	}
	c := kubekit.Start(t, "gateway", "inference")
	c.Namespace("prod")
	c.Create(pools, "prod", egPool)
	c.Grant("prod", "epp", "epp", "get,list,watch core pods", "get,list,watch inference.networking.k8s.io inferencepools")
	for name, ip := range map[string]string{"first": egEngine, "second": egOther} {
		serveKinds(t, name, ip)
		c.Pod("prod", kubekit.Pod{Name: name, IP: ip, Labels: fmt.Sprintf(`{"app":"vllm","name":%q}`, name)})
	}
	binary := filepath.Join(testkit.Build(t, "grapevine"), "grapevine")
	start(t, binary, "--pool-name", "llama", "--pool-namespace", "prod", "--zap-encoder", "json", "--listen", egPicker+":9002", "--health", egPicker+":9003", "--admin", egPicker+":9090",
		"--kubeconfig", c.Kubeconfig("epp"), "--config-text", egPicks, "--name", "epp-0")
	startEnvoyGateway(t, harness)

	ask := func(want string) (engine string, status int) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+egListener+"/v1/completions", strings.NewReader(`{"model":"m","prompt":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Want", want)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", 0
		}
		resp.Body.Close()
		return resp.Header.Get("X-Engine"), resp.StatusCode
	}
	c.Until("the gateway serves both pods", func() bool {
		one, _ := ask("first")
		other, _ := ask("second")
		return one == "first" && other == "second"
	})
	for range 10 {
		for _, name := range []string{"first", "second"} {
			if engine, status := ask(name); engine != name || status != http.StatusOK {
				t.Errorf("wanted %s: status %d from %q", name, status, engine)
			}
		}
	}
	n := kinds.Compare(t, egListener, fmt.Sprintf("%s:%d", egEngine, egTarget), "HTTP/1.0", "broken JSON", "packed body",
		"escaped path") // Envoy Gateway itself answers with a redirect
	t.Logf("%d kinds of requests as from the engine itself", n)

	c.Ready("prod", "second", egOther, false)
	c.Until("the pod that is not ready is left out", func() bool { engine, _ := ask("second"); return engine == "first" })
	c.Delete(kubekit.Pods, "prod", "first")
	c.Until("nobody is ready", func() bool { _, status := ask("first"); return status == http.StatusServiceUnavailable })
}

// serveKinds runs a pod's engine until the test ends.
func serveKinds(t *testing.T, name, ip string) {
	t.Helper()
	lis, err := net.Listen("tcp", fmt.Sprintf("%s:%d", ip, egTarget))
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: lis, Config: &http.Server{Handler: kinds.Engine(name), ReadHeaderTimeout: time.Minute}}
	server.Start()
	t.Cleanup(server.Close)
}

// startEnvoyGateway runs Envoy Gateway with its certificates, the test's Envoy, and the hooks for
// pools.
func startEnvoyGateway(t *testing.T, harness string) {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "data/envoy-versions/1.40.0/bin")
	for _, d := range []string{bin, dir + "/config", dir + "/state", dir + "/run"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(parts.Envoy(t), filepath.Join(bin, "envoy")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"objects.yaml": egObjects + egPool + "\n", "gateway.yaml": strings.ReplaceAll(egConfig, "DIR", dir)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), harness, "certgen", "--local", "--config-home", dir+"/config").CombinedOutput(); err != nil {
		t.Fatalf("certificates: %v\n%s", err, out)
	}
	start(t, harness, "hooks", egHooks, egPicker+":9002")
	start(t, harness, "server", "--config-path", dir+"/gateway.yaml")
}

// start runs a program until the test ends, and prints its log if the test fails.
func start(t *testing.T, program string, args ...string) {
	t.Helper()
	var log parts.Output
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		over := time.AfterFunc(10*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		defer over.Stop()
		_ = cmd.Wait() // the log has the reason
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if t.Failed() {
			t.Logf("%s %s:\n%s", filepath.Base(program), args[0], log.String())
		}
	})
}
