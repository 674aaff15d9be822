//go:build kube

package deploy_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

// Names under which the charts and manifests of other pickers probe.
const (
	probeOne     = "inference-extension"
	probeLive    = "liveness"
	probeReady   = "readiness"
	probeExtProc = "envoy.service.ext_proc.v3.ExternalProcessor"
)

// foreignChart is a container as a published chart or manifest of another picker renders
// it, with only the image exchanged: no command, these arguments and variables, probed
// under these names.
type foreignChart struct {
	name         string
	args         []string
	env          []string
	config       string // the one file under /config
	alive, ready string // service names of the probes

	files      map[string]string // under /config, where there are several
	kubeconfig string            // "": that of a user with the chart's rights
}

const inferenceConfig = `apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
schedulingProfiles:
- name: default
  plugins: [{pluginRef: queue-scorer, weight: 2}, {pluginRef: kv-cache-utilization-scorer, weight: 2}, {pluginRef: prefix-cache-scorer, weight: 3}]
`

const routerConfig = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
- {type: metrics-data-source, parameters: {scheme: http, path: /metrics, insecureSkipVerify: true}}
- {type: core-metrics-extractor, parameters: {defaultEngine: vllm}}
- {type: passthrough-parser}
dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: queue-scorer, weight: 2}, {pluginRef: kv-cache-utilization-scorer, weight: 2}, {pluginRef: prefix-cache-scorer, weight: 3}]
`

func foreignCharts() []foreignChart {
	inPod := []string{"NAMESPACE=foreign", "POD_NAME=llama-epp-7d9c8b5f6-x2x4z"}
	return []foreignChart{
		{
			name: "inference extension, one replica",
			args: []string{"--pool-name", "llama", "--pool-namespace", "foreign", "--pool-group", "inference.networking.k8s.io", "--zap-encoder", "json", "--config-file", "/config/default-plugins.yaml",
				"--grpc-health-port", "9003", "--v", "1", "--secure-serving", "false", `--total-queued-requests-metric="vllm:num_requests_waiting"`, "--tracing=false", "--metrics-endpoint-auth=false"},
			env: inPod, config: inferenceConfig, alive: probeOne, ready: probeOne,
		},
		{
			name: "inference extension, three replicas",
			args: []string{"--pool-name", "llama", "--pool-namespace", "foreign", "--zap-encoder", "json", "--config-file", "/config/default-plugins.yaml", "--ha-enable-leader-election", "--grpc-health-port", "9003", "--tracing=false"},
			env:  inPod, config: inferenceConfig, alive: probeLive, ready: probeReady,
		},
		{
			name: "router with a gateway",
			args: []string{"--pool-name=llama", "--zap-encoder=json", "--config-file=/config/default-plugins.yaml", "--grpc-health-port=9003", "--v=4", "--allow-experimental-plugins=true", "--tracing=false", "--metrics-endpoint-auth=false"},
			env:  inPod, config: routerConfig, alive: probeOne, ready: probeOne,
		},
		{
			name: "router alone",
			args: []string{"--endpoint-selector=app=vllm", "--endpoint-target-ports=8000", "--zap-encoder=json", "--config-file=/config/default-plugins.yaml", "--ha-enable-leader-election=true", "--grpc-health-port=9003", "--tracing=true"},
			env:  inPod, config: routerConfig, alive: probeLive, ready: probeReady,
		},
		{
			name: "router's components",
			args: []string{"--pool-name", "llama", "--pool-namespace", "foreign", "--v", "4", "--zap-encoder", "json", "--grpc-port", "9002", "--grpc-health-port", "9003", "--config-file", "/config/default-plugins.yaml"},
			env:  inPod, config: routerConfig, alive: probeExtProc, ready: probeExtProc,
		},
		{
			name: "manifest of the conformance suite",
			args: []string{"--pool-name", "llama", "--pool-namespace", "foreign", "--zap-encoder", "json", "--grpc-port", "9002", "--grpc-health-port", "9003"},
			env:  inPod, alive: probeOne, ready: probeOne,
		},
	}
}

// testForeignCharts: with the image exchanged and nothing else, the containers of other
// pickers' charts start with the rights of their service accounts, their probes are
// green, and their metrics are there.
func testForeignCharts(t *testing.T, c *kubekit.Cluster, binary string) {
	c.Namespace("foreign")
	c.Create(kubeapi.Resource{Group: "inference.networking.k8s.io", Version: "v1", Plural: "inferencepools"}, "foreign",
		`{"apiVersion":"inference.networking.k8s.io/v1","kind":"InferencePool","metadata":{"name":"llama"},"spec":{"selector":{"matchLabels":{"app":"vllm"}},"targetPorts":[{"number":8000}]}}`)
	c.Pod("foreign", kubekit.Pod{Name: "engine", IP: "127.0.5.100", Labels: `{"app":"vllm"}`})
	c.Grant("foreign", "epp", "epp", "get,list,watch core pods", "get,list,watch inference.networking.k8s.io inferencepools",
		"get,list,watch llm-d.ai inferenceobjectives,inferencemodelrewrites")
	for i, chart := range foreignCharts() {
		t.Run(chart.name, func(t *testing.T) {
			ip := fmt.Sprintf("127.0.5.%d", i+1)
			log := chart.start(t, c, binary, ip)
			chart.wellAt(t, c, ip)
			if text := log.String(); strings.Contains(text, `"level":"ERROR"`) || strings.Contains(text, "missing right") && !strings.Contains(text, "continuing without them") {
				t.Error("faults in the log")
			}
			if t.Failed() {
				t.Log(log.String())
			}
		})
	}
}

// wellAt waits until both probes are green and the pool's one endpoint is in the metrics.
func (f *foreignChart) wellAt(t *testing.T, c *kubekit.Cluster, ip string) {
	t.Helper()
	for _, name := range []string{f.alive, f.ready} {
		c.Until("a green probe of "+name, func() bool { return probed(t.Context(), ip+":9003", name) == "SERVING" })
	}
	c.Until("the pool in their metrics", func() bool {
		resp, err := http.Get("http://" + ip + ":9090/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		return err == nil && regexp.MustCompile(`(?m)^llm_d_epp_ready_endpoints\{.*\} 1$`).Match(page)
	})
}

// start runs the container's process until the end of the test. What is added says
// where it listens, for all are on one machine, and where the API server is.
func (f *foreignChart) start(t *testing.T, c *kubekit.Cluster, binary, ip string) *parts.Output {
	t.Helper()
	folder := t.TempDir()
	files := f.files
	if files == nil {
		files = map[string]string{"default-plugins.yaml": f.config}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var args []string
	for _, a := range f.args {
		args = append(args, strings.ReplaceAll(a, "/config/", folder+"/"))
	}
	args = append(args, "--listen", ip+":9002", "--health", ip+":9003", "--admin", ip+":9090", "--kubeconfig", cmp.Or(f.kubeconfig, c.Kubeconfig("epp")))
	var log parts.Output
	cmd := exec.Command(binary, args...) // no subcommand: as the image is run
	cmd.Env = append(os.Environ(), f.env...)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		if err := cmd.Wait(); cmd.ProcessState.Exited() {
			t.Errorf("it ended by itself: %v\n%s", err, log.String())
		}
	})
	return &log
}

// probed asks as the kubelet does.
func probed(ctx context.Context, addr, service string) string {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	if err != nil {
		return err.Error()
	}
	return answer.GetStatus().String()
}
