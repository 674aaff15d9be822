//go:build kube

// Package deploy_test holds charts, bases and examples to a real API server.
package deploy_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

var rewrite = flag.Bool("rewrite", false, "write the base of kustomize anew")

const chart = "helm/grapevine"

// values are the ways of installing that are rendered and applied.
var values = map[string][]string{
	"default":    nil,
	"pool":       {"--set", "pool.create=true,pool.matchLabels.app=vllm,pool.older=true"},
	"standalone": {"--set", "standalone.enabled=true,standalone.selector=app=vllm"},
	"plain":      {"--set", "standalone.enabled=true,standalone.selector=app=vllm,tls.mode=none,cluster.mode=none,replicas=1"},
	"all": {"--set", "pool.create=true,pool.matchLabels.app=vllm,tls.mode=cert-manager,tls.issuerRef.name=ca,networkPolicy.enabled=true,istio.destinationRule=true," +
		"monitoring.serviceMonitor.enabled=true,monitoring.alerts.enabled=true,monitoring.dashboard.enabled=true,events.port=5557,events.replayPort=5558,drainSeconds=60",
		"--set-json", `models=[{"name":"m","path":"/models/m"}],volumes=[{"name":"models","image":{"reference":"registry/tokenizers:1"}}],volumeMounts=[{"name":"models","mountPath":"/models"}],networkPolicy.proxies=[{"namespaceSelector":{}}]`,
		"--set-string", "config=apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"},
	"slices":      {"--set", "cluster.peers=endpointslices,pool.guard=0s,podIPFamily=ipv6"},
	"volume":      {"--set-json", `state={"persistentVolumeClaim":{"claimName":"state"}},modelFiles.cache={"persistentVolumeClaim":{"claimName":"models"}}`, "--set", "image.tag=20261128"},
	"federation":  {"--set", "federation.enabled=true,federation.config=cluster: a,federation.existingSecret=certs,networkPolicy.enabled=true,federation.annotations.x=y"},
	"federation2": {"--set", "federation.enabled=true,federation.config=cluster: a,federation.allNamespaces=true,federation.port=0"},
	"pools": {"--set-json", `pools=[{"name":"small","port":9012,"config":"apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"},{"name":"large","port":9013}]`,
		"--set", "networkPolicy.enabled=true,pool.older=true"},
	"allPools": {"--set", "allPools.enabled=true,allPools.ports={9012,9013}"},
	"nats":     {"--set", "cluster.mode=nats,cluster.nats.urls={nats://nats:4222},cluster.nats.credentialsSecret=creds,cluster.existingSecret=mine,tls.mode=secret,tls.secretName=cert"},
}

// publishedFiles returns the folder with charts, kinds and presets that other projects publish.
func publishedFiles(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("KUBE_CHARTS")
	if _, err := os.Stat(filepath.Join(folder, "ready")); folder == "" || err != nil {
		t.Fatal("the published charts are missing: make test-kube copies them and sets KUBE_CHARTS")
	}
	return folder
}

// publishedKinds returns the files that define kinds of other projects, as published.
func publishedKinds(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(publishedFiles(t), "kinds", "*.yaml"))
	if err != nil || len(files) != 5 {
		t.Fatalf("%d files of kinds, %v", len(files), err)
	}
	return files
}

// stubs define further kinds of other projects that manifests use, without their fields.
func stubs() string {
	var b strings.Builder
	for _, k := range []struct{ group, version, kind, plural string }{
		{"cert-manager.io", "v1", "Certificate", "certificates"}, {"networking.istio.io", "v1", "DestinationRule", "destinationrules"},
		{"keda.sh", "v1alpha1", "ScaledObject", "scaledobjects"},
		{"networking.gke.io", "v1", "HealthCheckPolicy", "healthcheckpolicies"}, {"networking.gke.io", "v1", "GCPBackendPolicy", "gcpbackendpolicies"},
	} {
		fmt.Fprintf(&b, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[4]s.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: %[3]s, plural: %[4]s}
  versions:
  - {name: %[2]s, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, k.group, k.version, k.kind, k.plural)
	}
	return b.String()
}

func TestDeploy(t *testing.T) {
	c := kubekit.Start(t, "gateway", "inference")
	c.Apply(stubs())
	for _, file := range publishedKinds(t) {
		c.Apply(readFile(t, file))
	}
	c.Kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	c.Namespace("prod")
	t.Run("Chart", func(t *testing.T) { testChart(t, c) })
	t.Run("Schema", func(t *testing.T) { testSchema(t, c) })
	t.Run("Base", func(t *testing.T) { testBase(t, c) })
	t.Run("Examples", func(t *testing.T) { testExamples(t, c) })
	t.Run("ModelFiles", func(t *testing.T) { testModelFiles(t, c) })
	t.Run("Alerts", func(t *testing.T) { testAlerts(t, c) })
	t.Run("Install", func(t *testing.T) { testInstall(t, c) })
	binary := buildImage(t)
	t.Run("Page", func(t *testing.T) { testPage(t, c, binary) })
	t.Run("Guide", func(t *testing.T) { testGuide(t, c, binary) })
	t.Run("Pods", func(t *testing.T) { testPods(t, c, binary) })
	t.Run("AirGapped", func(t *testing.T) { testAirGapped(t, c, binary) })
	t.Run("SeveralPools", func(t *testing.T) { testSeveralPools(t, c, binary) })
	t.Run("Standalone", func(t *testing.T) { testStandalone(t, c, binary) })
	t.Run("ForeignCharts", func(t *testing.T) { testForeignCharts(t, c, binary) })
	t.Run("KServe", func(t *testing.T) { testKServe(t, c, binary) })
	t.Run("PublishedCharts", func(t *testing.T) { testPublished(t, c, binary) })
	t.Run("Peers", func(t *testing.T) { testPeers(t, c, binary) })
	t.Run("Federation", func(t *testing.T) { testFederation(t, c, binary) })
	t.Run("Rights", func(t *testing.T) { testRights(t, c, binary) })
	t.Run("Outage", func(t *testing.T) { testOutage(t, c, binary) })
}

func helm(t *testing.T, c *kubekit.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Command("helm", "", args...)
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// dryRun has the API server look at manifests without keeping them.
func dryRun(t *testing.T, c *kubekit.Cluster, manifests string) {
	t.Helper()
	out, err := c.Command("kubectl", manifests, "apply", "--server-side", "--dry-run=server", "-n", "prod", "-f", "-")
	if err != nil || strings.Contains(out, "Warning") {
		t.Errorf("%v\n%s", err, out)
	}
}

// testChart renders every way of installing for the last three minor versions.
func testChart(t *testing.T, c *kubekit.Cluster) {
	helm(t, c, "lint", "--strict", chart)
	for name, set := range values {
		t.Run(name, func(t *testing.T) {
			for _, version := range []string{"1.34.0", "1.35.0", "1.36.0"} {
				args := append([]string{"template", "llama", chart, "-n", "prod", "--kube-version", version}, set...)
				dryRun(t, c, helm(t, c, args...))
			}
		})
	}
}

// testSchema gives values that cannot be.
func testSchema(t *testing.T, c *kubekit.Cluster) {
	for _, set := range []string{
		"replica=3", "replicas=0", "pool.failureMode=Open", "tls.mode=mtls", "cluster.mode=raft", "cluster.peers=mdns", "pool.targetPorts={0}", "pool.targetPorts={1,2,3,4,5,6,7,8,9}",
		"standalone.enabled=true", "pool.create=true", "cluster.mode=nats", "tls.mode=secret", "tls.mode=cert-manager", "image.digest=latest", "federation.enabled=true",
		"federation.enabled=true,federation.config=x,standalone.enabled=true,standalone.selector=app=vllm", "federation.port=70000", "modelFiles.source=on", "modelFiles.endpoint=mirror",
		"pool.guard=5", "monitoring.objectives.errors=7", "monitoring.objectives.errors=0.0", "monitoring.objectives.firstTokenSeconds=2s", "podIPFamily=v4", "state=null", "allPools.enabled=true", "pools[0].name=a", "pools[0].name=a,pools[0].port=9003", "pools[0].name=A,pools[0].port=9012",
		"pools[0].name=a,pools[0].port=9012,pool.create=true,pool.matchLabels.a=b", "pools[0].name=a,pools[0].port=9012,pools[1].name=b,pools[1].port=9012",
		"pools[0].name=a,pools[0].port=9012,standalone.enabled=true,standalone.selector=a", "pools[0].name=a,pools[0].port=9012,federation.enabled=true,federation.config=x",
	} {
		if out, err := c.Command("helm", "", "template", "x", chart, "--set", set); err == nil {
			t.Errorf("--set %s is taken:\n%.300s", set, out)
		}
	}
}

// testBase compares the kustomize base with the rendered chart.
func testBase(t *testing.T, c *kubekit.Cluster) {
	const path = "kustomize/base/grapevine.yaml"
	out := helm(t, c, "template", "llama", chart, "--set", "cluster.existingSecret=llama-epp-group", "--skip-tests")
	out = regexp.MustCompile(`(?m)^ *(# Source: .*|namespace: default|app.kubernetes.io/managed-by: .*|helm.sh/chart: .*)\n`).ReplaceAllString(out, "")
	out = strings.NewReplacer("--pool-namespace=default", "--pool-namespace=$(NAMESPACE)", "--cluster-label=default/", "--cluster-label=$(NAMESPACE)/",
		"-peers.default.svc", "-peers.$(NAMESPACE).svc", ", namespace: default}", "}",
		"          env:\n", "          env:\n            - name: NAMESPACE\n              valueFrom: {fieldRef: {fieldPath: metadata.namespace}}\n").Replace(out)
	if *rewrite {
		if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil || string(have) != out {
		t.Errorf("%s is not what the chart renders: go test -tags kube ./deploy -run TestDeploy/Base -rewrite", path)
	}
	dryRun(t, c, c.Kubectl("kustomize", "kustomize/base"))
}

func testExamples(t *testing.T, c *kubekit.Cluster) {
	files, err := filepath.Glob("examples/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, f := range append(files, "crds/llm-d.ai.yaml") {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(f), func(t *testing.T) { dryRun(t, c, string(b)) })
	}
}

// testInstall installs, upgrades, rolls back and removes: the group's key stays.
func testInstall(t *testing.T, c *kubekit.Cluster) {
	key := func() string {
		return c.Kubectl("get", "secret", "llama-epp-group", "-n", "prod", "-o", "jsonpath={.data}")
	}
	replicas := func() string {
		return c.Kubectl("get", "deployment", "llama-epp", "-n", "prod", "-o", "jsonpath={.spec.replicas}")
	}
	helm(t, c, "install", "llama", chart, "-n", "prod", "--set", "pool.create=true,pool.matchLabels.app=vllm")
	first := key()
	helm(t, c, "upgrade", "llama", chart, "-n", "prod", "--reuse-values", "--set", "replicas=5,pool.targetPorts={8000,8001}")
	if key() != first || replicas() != "5" {
		t.Errorf("after the upgrade: %s replicas, same key: %t", replicas(), key() == first)
	}
	helm(t, c, "rollback", "llama", "1", "-n", "prod")
	if key() != first || replicas() != "3" {
		t.Errorf("after rolling back: %s replicas, same key: %t", replicas(), key() == first)
	}
	helm(t, c, "uninstall", "llama", "-n", "prod")
	if key() != first {
		t.Error("the key went with the release")
	}
	helm(t, c, "install", "llama", chart, "-n", "prod", "--take-ownership", "--set", "pool.create=true,pool.matchLabels.app=vllm")
	if key() != first {
		t.Error("another installation made another key")
	}
}

// testNamesOfMetrics checks that alerts and dashboards use existing metrics only.
func testNamesOfMetrics(t *testing.T, page string) {
	t.Helper()
	reference := readFile(t, "../docs/metrics.md") // generated from the registry
	var unknown []string
	files, err := filepath.Glob(chart + "/files/dashboards/*.json")
	if err != nil || len(files) < 5 {
		t.Errorf("dashboards %q, %v, want 5", files, err)
	}
	for _, file := range append(files, chart+"/files/alerts.yaml") {
		for _, name := range regexp.MustCompile(`grapevine_[a-z_]+`).FindAllString(readFile(t, file), -1) {
			name = strings.TrimSuffix(name, "_bucket")
			// Series with labels are on the page only once something has counted.
			if !strings.Contains(page, "# TYPE "+name+" ") && !strings.Contains(reference, "| `"+name+"` |") {
				unknown = append(unknown, name)
			}
		}
	}
	slices.Sort(unknown)
	if unknown = slices.Compact(unknown); len(unknown) > 0 {
		t.Errorf("no such metrics: %v", unknown)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
