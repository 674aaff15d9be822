//go:build kube

package deploy_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
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

// testPublished installs published charts with only their image replaced and runs their pods as
// specified. Their probes succeed, and their metrics count the pool's endpoint.
func testPublished(t *testing.T, c *kubekit.Cluster, binary string) {
	charts := publishedFiles(t)
	images := imagesOf(t, binary)
	for _, name := range []string{"training", "prediction"} { // whose role the picker has itself
		images["gateway-api-inference-extension/latency-"+name+"-server:v1.5.0"] = podkit.Image{Absent: true}
	}
	for i, x := range published {
		t.Run(x.version+" "+x.chart+" "+x.name, func(t *testing.T) {
			namespace := fmt.Sprintf("published-%d", i)
			c.Namespace(namespace)
			startEngine(t, c, namespace, "engine")
			set := "inferenceExtension.image.registry=registry.example,inferenceExtension.image.repository=grapevine,inferenceExtension.image.tag=v1"
			if x.version == "v1.4.0" {
				set = "inferenceExtension.image.hub=registry.example,inferenceExtension.image.name=grapevine,inferenceExtension.image.tag=v1"
			}
			if x.chart == "inferencepool" {
				set += ",inferencePool.modelServers.matchLabels.app=vllm"
			}
			helm(t, c, "install", "llama", filepath.Join(charts, x.version, x.chart), "-n", namespace, "--set", set, "--set", x.set)
			k := podkit.Open(t, c, images)
			k.Expose(namespace)
			p := k.Deployment(namespace, "llama-epp")
			servesOneEndpoint(t, c, p)
			for line := range strings.Lines(p.Log("epp")) {
				// The simulated engine's model has no repository.
				if (strings.Contains(line, `"level":"ERROR"`) || strings.Contains(line, `"level":"WARN"`)) && !strings.Contains(line, "model files not found") {
					t.Errorf("fault in the log: %s", line)
				}
			}
		})
	}
}
