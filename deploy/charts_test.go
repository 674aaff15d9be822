//go:build kube

package deploy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
)

// Names under which the charts and manifests of other pickers probe.
const (
	probeOne     = "inference-extension"
	probeLive    = "liveness"
	probeReady   = "readiness"
	probeExtProc = "envoy.service.ext_proc.v3.ExternalProcessor"
)

// foreignChart is a container as rendered by a published chart or manifest of another picker, with
// only the image replaced. It has no command, these arguments, the variables NAMESPACE and
// POD_NAME, and probes under these names.
type foreignChart struct {
	name         string
	args         []string
	config       string // the one file under /config
	alive, ready string // service names of the probes
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
	return []foreignChart{
		{
			name: "inference extension, one replica",
			args: []string{"--pool-name", "llama", "--pool-namespace", "foreign", "--pool-group", "inference.networking.k8s.io", "--zap-encoder", "json", "--config-file", "/config/default-plugins.yaml",
				"--grpc-health-port", "9003", "--v", "1", "--secure-serving", "false", `--total-queued-requests-metric="vllm:num_requests_waiting"`, "--tracing=false", "--metrics-endpoint-auth=false"},
			config: inferenceConfig, alive: probeOne, ready: probeOne,
		},
		{
			name:   "inference extension, three replicas",
			args:   []string{"--pool-name", "llama", "--pool-namespace", "foreign", "--zap-encoder", "json", "--config-file", "/config/default-plugins.yaml", "--ha-enable-leader-election", "--grpc-health-port", "9003", "--tracing=false"},
			config: inferenceConfig, alive: probeLive, ready: probeReady,
		},
		{
			name:   "router with a gateway",
			args:   []string{"--pool-name=llama", "--zap-encoder=json", "--config-file=/config/default-plugins.yaml", "--grpc-health-port=9003", "--v=4", "--allow-experimental-plugins=true", "--tracing=false", "--metrics-endpoint-auth=false"},
			config: routerConfig, alive: probeOne, ready: probeOne,
		},
		{
			name:   "router alone",
			args:   []string{"--endpoint-selector=app=vllm", "--endpoint-target-ports=8000", "--zap-encoder=json", "--config-file=/config/default-plugins.yaml", "--ha-enable-leader-election=true", "--grpc-health-port=9003", "--tracing=true"},
			config: routerConfig, alive: probeLive, ready: probeReady,
		},
		{
			name:   "router's components",
			args:   []string{"--pool-name", "llama", "--pool-namespace", "foreign", "--v", "4", "--zap-encoder", "json", "--grpc-port", "9002", "--grpc-health-port", "9003", "--config-file", "/config/default-plugins.yaml"},
			config: routerConfig, alive: probeExtProc, ready: probeExtProc,
		},
		{
			name:  "manifest of the conformance suite",
			args:  []string{"--pool-name", "llama", "--pool-namespace", "foreign", "--zap-encoder", "json", "--grpc-port", "9002", "--grpc-health-port", "9003"},
			alive: probeOne, ready: probeOne,
		},
	}
}

// testForeignCharts: with only the image replaced, the containers of other pickers' charts start
// with the rights of their service accounts, their probes succeed, and their metrics count the
// pool's endpoint.
func testForeignCharts(t *testing.T, c *kubekit.Cluster, binary string) {
	const namespace = "foreign"
	c.Namespace(namespace)
	c.Apply(poolNamed("llama"), "-n", namespace)
	startEngine(t, c, namespace, "engine")
	c.Apply(foreignRights, "-n", namespace)
	for i, chart := range foreignCharts() {
		t.Run(chart.name, func(t *testing.T) {
			k := podkit.Open(t, c, imagesOf(t, binary))
			name := fmt.Sprintf("llama-epp-7d9c8b5f6-x2x4%d", i)
			p := k.Manifest(namespace, chart.pod(t, c, namespace, name))
			servesOneEndpoint(t, c, p)
			if text := p.Log("epp"); strings.Contains(text, `"level":"ERROR"`) || strings.Contains(text, "missing right") && !strings.Contains(text, "continuing without them") {
				t.Errorf("faults in the log:\n%s", text)
			}
		})
	}
}

// foreignRights are the rights that those charts grant.
const foreignRights = `apiVersion: v1
kind: ServiceAccount
metadata: {name: epp}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: epp}
rules:
- {verbs: [get, list, watch], apiGroups: [""], resources: [pods]}
- {verbs: [get, list, watch], apiGroups: [inference.networking.k8s.io], resources: [inferencepools]}
- {verbs: [get, list, watch], apiGroups: [llm-d.ai], resources: [inferenceobjectives, inferencemodelrewrites]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: epp}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: epp}
subjects: [{kind: ServiceAccount, name: epp}]
`

// pod creates the chart's ConfigMap and returns the manifest of its pod.
func (f *foreignChart) pod(t *testing.T, c *kubekit.Cluster, namespace, name string) string {
	t.Helper()
	config, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]string{"default-plugins.yaml": f.config}})
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(string(config), "-n", namespace)
	probe := func(service string) any {
		return map[string]any{"grpc": map[string]any{"port": 9003, "service": service}}
	}
	field := func(name, path string) any {
		return map[string]any{"name": name, "valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": path}}}
	}
	pod, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"serviceAccountName": "epp",
			"containers": []any{map[string]any{
				"name": "epp", "image": "grapevine:dev", "args": f.args, "livenessProbe": probe(f.alive), "readinessProbe": probe(f.ready),
				"env":          []any{field("NAMESPACE", "metadata.namespace"), field("POD_NAME", "metadata.name")},
				"ports":        []any{map[string]any{"containerPort": 9002}, map[string]any{"containerPort": 9003}, map[string]any{"name": "metrics", "containerPort": 9090}},
				"volumeMounts": []any{map[string]any{"name": "plugins-config-volume", "mountPath": "/config"}},
			}},
			"volumes": []any{map[string]any{"name": "plugins-config-volume", "configMap": map[string]any{"name": name}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(pod)
}

// servesOneEndpoint waits until the probes of a pod succeed and its metrics, at its address, count
// the pool's one endpoint.
func servesOneEndpoint(t *testing.T, c *kubekit.Cluster, p *podkit.Pod) {
	t.Helper()
	p.WaitReady()
	c.Until("the pool is in the metrics of "+p.Name, func() bool {
		resp, err := http.Get("http://" + p.IP + ":9090/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		return err == nil && regexp.MustCompile(`(?m)^llm_d_epp_ready_endpoints\{.*\} 1$`).Match(page)
	})
}
