//go:build kube

package deploy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

// published are ways of installing the charts that the Gateway API Inference Extension
// publishes.
var published = []struct{ name, version, chart, set string }{
	{"one replica", "v1.5.0", "inferencepool", ""},
	{"three replicas", "v1.5.0", "inferencepool", "inferenceExtension.replicas=3"},
	{"sglang, traced, in Istio", "v1.5.0", "inferencepool", "inferencePool.modelServerType=sglang,inferenceExtension.tracing.enabled=true,provider.name=istio"},
	{"triton, scraped", "v1.5.0", "inferencepool", "inferencePool.modelServerType=triton-tensorrt-llm,inferenceExtension.monitoring.prometheus.enabled=true"},
	{"trtllm-serve, flags", "v1.5.0", "inferencepool", "inferencePool.modelServerType=trtllm-serve,inferenceExtension.flags.v=4,inferenceExtension.flags.secure-serving=true"},
	{"predicted latencies", "v1.5.0", "inferencepool", "inferenceExtension.latencyPredictor.enabled=true"},
	{"beside an Envoy", "v1.5.0", "standalone", "inferenceExtension.endpointsServer.createInferencePool=false,inferenceExtension.endpointsServer.endpointSelector=app=vllm"},
	{"one replica", "v1.4.0", "inferencepool", ""},
	{"three replicas", "v1.4.0", "inferencepool", "inferenceExtension.replicas=3"},
	{"beside an Envoy", "v1.4.0", "standalone", "inferenceExtension.endpointsServer.createInferencePool=false,inferenceExtension.endpointsServer.endpointSelector=app=vllm"},
}

// deployed is what is looked at of a chart's Deployment.
type deployed struct {
	Spec struct {
		Template struct {
			Spec struct {
				Account    string `json:"serviceAccountName"`
				Containers []struct {
					Name    string   `json:"name"`
					Image   string   `json:"image"`
					Command []string `json:"command"`
					Args    []string `json:"args"`
					Env     []struct {
						Name  string `json:"name"`
						Value string `json:"value"`
						From  struct {
							Field struct {
								Path string `json:"fieldPath"`
							} `json:"fieldRef"`
						} `json:"valueFrom"`
					} `json:"env"`
					Live   probe `json:"livenessProbe"`
					Ready  probe `json:"readinessProbe"`
					Mounts []struct {
						Name string `json:"name"`
						Path string `json:"mountPath"`
					} `json:"volumeMounts"`
				} `json:"containers"`
				Volumes []struct {
					Name   string `json:"name"`
					Config struct {
						Name string `json:"name"`
					} `json:"configMap"`
				} `json:"volumes"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

type probe struct {
	GRPC struct {
		Port    int    `json:"port"`
		Service string `json:"service"`
	} `json:"grpc"`
}

// testPublished installs published charts with nothing but their image replaced, and runs
// the container of each as a kubelet would: its arguments, variables and files, a token of
// its service account with the rights that the chart grants. Its probes are green, and the
// pool's one endpoint is in its metrics.
func testPublished(t *testing.T, c *kubekit.Cluster, binary string) {
	charts := os.Getenv("KUBE_CHARTS")
	if _, err := os.Stat(filepath.Join(charts, "ready")); charts == "" || err != nil {
		t.Fatal("the published charts are missing: make test-kube copies them and sets KUBE_CHARTS")
	}
	for i, x := range published {
		t.Run(x.version+" "+x.chart+" "+x.name, func(t *testing.T) {
			namespace := fmt.Sprintf("published-%d", i)
			c.Namespace(namespace)
			ip := fmt.Sprintf("127.0.6.%d", i+1)
			c.Pod(namespace, kubekit.Pod{Name: "engine", IP: "127.0.6.100", Labels: `{"app":"vllm"}`})
			set := "inferenceExtension.image.registry=registry.example,inferenceExtension.image.repository=grapevine,inferenceExtension.image.tag=v1"
			if x.version == "v1.4.0" {
				set = "inferenceExtension.image.hub=registry.example,inferenceExtension.image.name=grapevine,inferenceExtension.image.tag=v1"
			}
			if x.chart == "inferencepool" {
				set += ",inferencePool.modelServers.matchLabels.app=vllm"
			}
			helm(t, c, "install", "llama", filepath.Join(charts, x.version, x.chart), "-n", namespace, "--set", set, "--set", x.set)
			f := publishedContainer(t, c, namespace)
			log := f.start(t, c, binary, ip)
			f.wellAt(t, c, ip)
			if text := log.String(); strings.Contains(text, `"level":"ERROR"`) || strings.Contains(text, `"level":"WARN"`) {
				t.Errorf("faults in the log:\n%s", text)
			}
		})
	}
}

// publishedContainer reads the container of the chart's Deployment.
func publishedContainer(t *testing.T, c *kubekit.Cluster, namespace string) *foreignChart {
	t.Helper()
	var d deployed
	if err := json.Unmarshal([]byte(c.Kubectl("get", "deployment", "llama-epp", "-n", namespace, "-o", "json")), &d); err != nil {
		t.Fatal(err)
	}
	pod := &d.Spec.Template.Spec
	for i := range pod.Containers {
		x := &pod.Containers[i]
		if x.Name != "epp" {
			continue
		}
		if x.Image != "registry.example/grapevine:v1" || len(x.Command) > 0 || x.Live.GRPC.Port != 9003 || x.Ready.GRPC.Port != 9003 {
			t.Fatalf("container %+v", x)
		}
		f := &foreignChart{args: x.Args, alive: x.Live.GRPC.Service, ready: x.Ready.GRPC.Service, files: map[string]string{}}
		for _, e := range x.Env {
			value := e.Value
			switch e.From.Field.Path {
			case "metadata.namespace":
				value = namespace
			case "metadata.name":
				value = "llama-epp-7d9c8b5f6-x2x4z"
			case "spec.nodeName":
				value = "node"
			}
			f.env = append(f.env, e.Name+"="+value)
		}
		for _, v := range pod.Volumes {
			if len(x.Mounts) > 0 && v.Name == x.Mounts[0].Name && x.Mounts[0].Path == "/config" {
				var m struct {
					Data map[string]string `json:"data"`
				}
				if err := json.Unmarshal([]byte(c.Kubectl("get", "configmap", v.Config.Name, "-n", namespace, "-o", "json")), &m); err != nil {
					t.Fatal(err)
				}
				f.files = m.Data
			}
		}
		f.kubeconfig = accountConfig(t, c, pod.Account, namespace)
		return f
	}
	t.Fatal("there is no container epp")
	return nil
}
