//go:build kube

package deploy_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/hub"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
)

// buildImage builds the program as deploy/Dockerfile does.
func buildImage(t *testing.T) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "grapevine")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w -X main.version=dev", "-o", binary, "../cmd/grapevine")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// imagesOf returns the images that charts and examples name, with this build as their content.
func imagesOf(t *testing.T, binary string) map[string]podkit.Image {
	t.Helper()
	own := podkit.Image{Files: map[string]string{"/grapevine": binary, "/app/epp": binary}, Entrypoint: []string{"/grapevine"}, User: 65532}
	envoy := podkit.Image{Files: map[string]string{"/usr/local/bin/envoy": parts.Envoy(t)}, Entrypoint: []string{"/usr/local/bin/envoy"}, User: 101}
	for _, dir := range []string{"/lib", "/lib64", "/usr/lib"} { // of the C library
		if _, err := os.Stat(dir); err == nil {
			envoy.Files[dir] = dir
		}
	}
	return map[string]podkit.Image{
		"grapevine:dev": own, "grapevine:v1": own,
		"envoyproxy/envoy:v1.38.0": envoy, "envoyproxy/envoy:distroless-v1.33.2": envoy,
	}
}

// startEngine starts a simulated engine at a separate address, and its pod.
func startEngine(t *testing.T, c *kubekit.Cluster, namespace, name string) (address string) {
	t.Helper()
	return openEngine(t, c, namespace, name, sim.Options{}, "")
}

// openEngine is like startEngine, with further options of the engine and annotations of its pod.
func openEngine(t *testing.T, c *kubekit.Cluster, namespace, name string, o sim.Options, annotations string) (address string) {
	t.Helper()
	ip := podkit.NodeAddress(t)
	o.Addr, o.Speed, o.Events = ip+":8000", 20, &sim.EventOptions{Addr: ip + ":5557", Replay: ip + ":5558"}
	e, err := sim.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	c.Pod(namespace, kubekit.Pod{Name: name, IP: ip, Labels: `{"app":"vllm"}`, Annotations: annotations})
	return e.Addr()
}

// statusOf returns what grapevine status prints in a pod. The command fails while the replica is not
// ready, and prints the same.
func statusOf(p *podkit.Pod) (st server.Status, text string) { return statusIn(p, "epp") }

// statusIn is statusOf for a container with another name.
func statusIn(p *podkit.Pod, container string) (st server.Status, text string) {
	text, _ = p.Exec(container, "/grapevine", "status", "-o", "json")
	_ = json.Unmarshal([]byte(text), &st) // the caller waits for its content
	return st, text
}

// waitForExact waits until the pod knows the content of every engine's cache exactly.
func waitForExact(t *testing.T, c *kubekit.Cluster, p *podkit.Pod) {
	t.Helper()
	var last string
	defer func() {
		if t.Failed() {
			t.Logf("the last status of %s:\n%s", p.Name, last)
		}
	}()
	c.Until(p.Name+" knows the caches exactly", func() bool {
		var st server.Status
		st, last = statusOf(p)
		for i := range st.Endpoints {
			if st.Endpoints[i].Knowledge != knowledge.Exact.String() {
				return false
			}
		}
		return len(st.Endpoints) > 0
	})
}

// repository is the model's name at the hub.
const repository = "lab/tiny"

// annotated are the annotations of examples/vllm.yaml.
const annotated = `{"grapevine-epp.github.io/events-port":"5557","grapevine-epp.github.io/events-replay-port":"5558"}`

// testPods installs chart, base and plain manifests unchanged, runs their pods as specified, and
// looks at them from outside. The model is gated: each pod downloads its tokenizer with the token
// of a Secret, and becomes exact.
func testPods(t *testing.T, c *kubekit.Cluster, binary string) {
	models := hub.StartAt(t, podkit.NodeAddress(t), podkit.NodeAddress(t))
	folder := t.TempDir()
	if err := vocab.New().WriteModel(folder); err != nil {
		t.Fatal(err)
	}
	models.Add(t, repository, folder).Gated = true
	asked := 0
	set := []string{"--set", "pool.create=true,pool.matchLabels.app=vllm,modelFiles.endpoint=" + models.URL, "-f", "examples/models/gated.yaml"}
	for _, way := range []struct {
		name    string
		install func(namespace string)
	}{
		{"Chart", func(namespace string) {
			helm(t, c, append([]string{"install", "llama", chart, "-n", namespace}, set...)...)
		}},
		{"Base", func(namespace string) {
			c.Kubectl("create", "secret", "generic", "llama-epp-group", "-n", namespace, "--from-literal=key="+newKey(1), "--from-literal=secret="+newKey(2))
			c.Kubectl("apply", "-k", overlayOf(t, "namespace: "+namespace+"\nresources: [../kustomize/base]\n"), "-n", namespace)
			c.Kubectl("set", "env", "deployment/llama-epp", "HF_ENDPOINT="+models.URL, "HF_TOKEN="+models.Token, "-n", namespace)
			c.Apply(poolNamed("llama"), "-n", namespace)
		}},
		{"Manifests", func(namespace string) {
			c.Apply(helm(t, c, append([]string{"template", "llama", chart, "-n", namespace, "--skip-tests"}, set...)...), "-n", namespace)
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			namespace := "pods-" + strings.ToLower(way.name)
			c.Namespace(namespace)
			// As in the first lines of examples/models/gated.yaml.
			c.Kubectl("create", "secret", "generic", "hf-token", "--from-literal=token="+models.Token, "-n", namespace)
			engine := openEngine(t, c, namespace, "vllm-0", sim.Options{Root: repository}, annotated)
			way.install(namespace)
			k := podkit.Open(t, c, imagesOf(t, binary))
			k.Expose(namespace)
			var pods []*podkit.Pod
			for range 3 {
				pods = append(pods, k.Deployment(namespace, "llama-epp"))
			}
			for _, p := range pods {
				p.WaitReady()
			}
			for _, p := range pods {
				lookFromOutside(t, c, p, engine)
				waitForExact(t, c, p)
			}
			if len(models.Requests()) == asked || len(models.Leaked()) > 0 {
				t.Errorf("requests to the hub before and after: %d, %d; credentials at its content host: %q", asked, len(models.Requests()), models.Leaked())
			}
			asked = len(models.Requests())
			waitForGroup(t, c, pods)
			if way.name == "Chart" {
				runNotes(t, c, k, namespace, pods)
				rotateKey(t, c, namespace, pods)
			}
		})
	}
}

func newKey(fill byte) string {
	key := make([]byte, 32)
	key[0] = fill
	return base64.StdEncoding.EncodeToString(key)
}

func poolNamed(name string) string {
	return fmt.Sprintf(`{apiVersion: inference.networking.k8s.io/v1, kind: InferencePool, metadata: {name: %s},
spec: {selector: {matchLabels: {app: vllm}}, targetPorts: [{number: 8000}], endpointPickerRef: {name: %[1]s-epp, port: {number: 9002}}}}`, name)
}

// lookFromOutside reads metrics, page, status and probes at the address of a pod.
func lookFromOutside(t *testing.T, c *kubekit.Cluster, p *podkit.Pod, engine string) {
	t.Helper()
	page := get(t, "http://"+p.IP+":9090/metrics")
	testNamesOfMetrics(t, page)
	if !strings.Contains(page, "\ngrapevine_picker_endpoints 1\n") {
		t.Errorf("the metrics of %s do not count the engine", p.Name)
	}
	if html := get(t, "http://"+p.IP+":9090/"); !strings.Contains(html, "<html") {
		t.Errorf("the page of %s is %.200q", p.Name, html)
	}
	out, err := p.Exec("epp", "/grapevine", "status", "-o", "json")
	if err != nil || !strings.Contains(out, engine) {
		t.Errorf("grapevine status in %s: %v\n%s", p.Name, err, out)
	}
	if err := p.Probe(); err != nil {
		t.Errorf("probe of %s: %v", p.Name, err)
	}
	for line := range strings.Lines(p.Log("epp")) {
		if strings.Contains(line, `"level":"ERROR"`) || strings.Contains(line, "missing right") && !strings.Contains(line, "continuing without them") {
			t.Errorf("error in the log of %s: %s", p.Name, line)
		}
	}
	// Requests, prompts and profiles stay inside the pod.
	resp, err := http.Post("http://"+p.IP+":9090/debug/explain", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode < 400 {
		t.Errorf("POST /debug/explain at the address of %s: %s", p.Name, resp.Status)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v\n%s", url, resp.Status, err, b)
	}
	return string(b)
}

// waitForGroup waits until every replica counts all others as members.
func waitForGroup(t *testing.T, c *kubekit.Cluster, pods []*podkit.Pod) {
	t.Helper()
	for _, p := range pods {
		c.Until("the group is complete in "+p.Name, func() bool {
			out, err := p.Exec("epp", "/grapevine", "members", "-o", "json")
			var members []json.RawMessage
			return err == nil && json.Unmarshal([]byte(out), &members) == nil && len(members) == len(pods)
		})
	}
}

// runNotes runs the commands at the end of the chart's notes.
func runNotes(t *testing.T, c *kubekit.Cluster, k *podkit.Kit, namespace string, pods []*podkit.Pod) {
	t.Helper()
	const exec = " exec deployment/llama-epp -- "
	n := 0
	for line := range strings.Lines(helm(t, c, "get", "notes", "llama", "-n", namespace)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "helm test llama -n "+namespace:
			runHelmTest(t, c, k, namespace)
		case strings.HasPrefix(line, "kubectl -n "+namespace+exec):
			_, command, _ := strings.Cut(line, exec)
			for _, p := range pods {
				if out, err := p.Exec("epp", strings.Fields(command)...); err != nil || !strings.Contains(out, p.Name) {
					t.Errorf("%s: %v\n%s", line, err, out)
				}
			}
		case strings.HasPrefix(line, "kubectl"), strings.HasPrefix(line, "helm"):
			t.Errorf("a command of the notes that the test does not run: %s", line)
			continue
		default:
			continue
		}
		n++
	}
	if n != 3 {
		t.Errorf("the notes have %d commands, want 3", n)
	}
}

// runHelmTest runs the pod of helm test.
func runHelmTest(t *testing.T, c *kubekit.Cluster, k *podkit.Kit, namespace string) {
	t.Helper()
	hooks := helm(t, c, "get", "hooks", "llama", "-n", namespace)
	_, manifest, _ := strings.Cut(hooks, "---")
	p := k.Manifest(namespace, manifest)
	code, err := p.Wait("status", time.Minute)
	if err != nil || code != 0 {
		t.Errorf("helm test: exit code %d, %v\n%s", code, err, p.Log("status"))
	}
}

// rotateKey adds a key to the Secret: replicas read it without a restart or a signal.
func rotateKey(t *testing.T, c *kubekit.Cluster, namespace string, pods []*podkit.Pod) {
	t.Helper()
	old, err := base64.StdEncoding.DecodeString(c.Kubectl("get", "secret", "llama-epp-group", "-n", namespace, "-o", "jsonpath={.data.key}"))
	if err != nil {
		t.Fatal(err)
	}
	keys := base64.StdEncoding.EncodeToString([]byte(newKey(7) + "\n" + string(old)))
	c.Kubectl("patch", "secret", "llama-epp-group", "-n", namespace, "-p", fmt.Sprintf(`{"data":{"key":%q}}`, keys))
	for _, p := range pods {
		p.Refresh()
	}
	for _, p := range pods {
		c.Until("two keys are read by "+p.Name, func() bool {
			text := p.Log("epp")
			return strings.Contains(text, "group keys read") && strings.Contains(text, `"keys":2`)
		})
	}
}

// testStandalone sends requests through the chart's own Envoy.
func testStandalone(t *testing.T, c *kubekit.Cluster, binary string) {
	const namespace = "standalone"
	c.Namespace(namespace)
	for i := range 2 {
		startEngine(t, c, namespace, fmt.Sprintf("vllm-%d", i))
	}
	helm(t, c, "install", "llama", chart, "-n", namespace, "--set", "standalone.enabled=true,standalone.selector=app=vllm")
	k := podkit.Open(t, c, imagesOf(t, binary))
	k.Expose(namespace)
	var pods []*podkit.Pod
	for range 2 {
		pods = append(pods, k.Deployment(namespace, "llama-epp"))
	}
	for _, p := range pods {
		p.WaitReady()
	}
	k.Deployment(namespace, "llama-epp-envoy").WaitReady()
	address := c.Kubectl("get", "service", "llama-epp-envoy", "-n", namespace, "-o", "jsonpath={.spec.clusterIP}")
	var last string
	c.Until("the first request is answered", func() bool {
		last = complete("http://" + address)
		return last == ""
	})
	for i := range 20 {
		if problem := complete("http://" + address); problem != "" {
			t.Errorf("request %d: %s", i, problem)
		}
	}
	for _, p := range pods {
		if strings.Contains(get(t, "http://"+p.IP+":9090/metrics"), `grapevine_picker_decisions_total`) {
			return
		}
	}
	t.Error("no replica counts a decision")
}

// complete sends a request and returns the problem with the answer, or "".
func complete(base string) (problem string) { return testkit.Complete(base, vocab.Name) }
