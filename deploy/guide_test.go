//go:build kube

package deploy_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/testkit/guide"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
)

// runEngine is a simulated engine with the command line of vLLM.
func runEngine(args []string) (code int) {
	f := flag.NewFlagSet("vllm", flag.ContinueOnError)
	model, port, events := f.String("model", "", ""), f.Int("port", 0, ""), f.String("kv-events-config", "", "")
	f.Bool("enable-prefix-caching", false, "")
	f.Bool("enable-prompt-tokens-details", false, "")
	var config struct {
		Endpoint string `json:"endpoint"`
		Replay   string `json:"replay_endpoint"`
		Topic    string `json:"topic"`
	}
	err := f.Parse(args[1:]) // after "serve"
	if err == nil {
		err = json.Unmarshal([]byte(*events), &config)
	}
	at := func(endpoint string) string { return strings.Replace(endpoint, "tcp://*", "0.0.0.0", 1) }
	var e *sim.Engine
	if err == nil {
		e, err = sim.Open(sim.Options{
			Addr: fmt.Sprintf("0.0.0.0:%d", *port), Model: *model, Speed: 20,
			Events: &sim.EventOptions{Addr: at(config.Endpoint), Replay: at(config.Replay), Topic: config.Topic},
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vllm:", err)
		return 1
	}
	defer e.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	return 0
}

// cluster runs the pods of all Deployments in a namespace, in place of controllers and a kubelet.
type cluster struct {
	t         *testing.T
	c         *kubekit.Cluster
	k         *podkit.Kit
	namespace string

	mu        sync.Mutex
	templates map[string]string // of running pods, by Deployment
	pods      map[string][]*podkit.Pod
	forwarded []string // addresses
}

// reconcile starts the missing pods of Deployments, replaces pods of an older template, and runs
// single pods that have no node.
func (x *cluster) reconcile() {
	x.t.Helper()
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Spec struct {
				Replicas int             `json:"replicas"`
				Template json.RawMessage `json:"template"`
			} `json:"spec"`
		} `json:"items"`
	}
	if err := json.Unmarshal([]byte(x.c.Kubectl("get", "deployments", "-n", x.namespace, "-o", "json")), &list); err != nil {
		x.t.Fatal(err)
	}
	for _, d := range list.Items {
		name := d.Metadata.Name
		if x.templates[name] == string(d.Spec.Template) {
			continue
		}
		x.k.Expose(x.namespace)
		var pods []*podkit.Pod
		for range d.Spec.Replicas {
			pods = append(pods, x.k.Deployment(x.namespace, name))
		}
		for _, p := range pods {
			p.WaitReady()
		}
		x.mu.Lock()
		old := x.pods[name]
		x.templates[name], x.pods[name] = string(d.Spec.Template), pods
		x.mu.Unlock()
		var wg sync.WaitGroup
		for _, p := range old {
			wg.Go(func() { _ = p.Terminate() }) // another test checks how replicas end
		}
		wg.Wait()
		for _, p := range old {
			p.Remove()
		}
	}
	for _, name := range strings.Fields(x.c.Kubectl("get", "pods", "-n", x.namespace, "--field-selector=spec.nodeName=,status.phase=Pending", "-o", "jsonpath={.items[*].metadata.name}")) {
		x.k.RunOnce(x.namespace, name)
	}
}

// exec runs a command of kubectl exec. The body has the Deployment and the words of the command, one a
// line.
func (x *cluster) exec(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	words := strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
	x.mu.Lock()
	pods := x.pods[strings.TrimPrefix(words[0], "deployment/")]
	x.mu.Unlock()
	if err != nil || len(pods) == 0 || len(words) < 2 {
		http.Error(w, fmt.Sprintf("no pod for %q", words), http.StatusNotFound)
		return
	}
	out, err := pods[0].Exec("epp", words[1:]...)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintln(w, err)
	}
	_, _ = io.WriteString(w, out) // the client is curl
}

// forward forwards a local port to the first pod of a Deployment until the test ends, as kubectl
// port-forward does. The body has the Deployment and the port.
func (x *cluster) forward(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	target, port, _ := strings.Cut(strings.TrimSpace(string(body)), " ")
	name := strings.TrimPrefix(target, "deployment/")
	address := "127.0.0.1:" + port
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil || len(x.pods[name]) == 0 {
		http.Error(w, fmt.Sprintf("no pod of %q", target), http.StatusNotFound)
		return
	}
	if !slices.Contains(x.forwarded, address) { // pages forward the same port
		l, err := net.Listen("tcp", address)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		x.forwarded = append(x.forwarded, address)
		x.t.Cleanup(func() { _ = l.Close() })
		go x.accept(l, name, port)
	}
	fmt.Fprintf(w, "Forwarding from %s -> %s\n", address, port)
}

// accept connects the connections of a listener to the Deployment's first pod until the listener is
// closed.
func (x *cluster) accept(l net.Listener, name, port string) {
	for {
		local, err := l.Accept()
		if err != nil {
			return
		}
		x.mu.Lock()
		to := net.JoinHostPort(x.pods[name][0].IP, port)
		x.mu.Unlock()
		remote, err := net.Dial("tcp", to)
		if err != nil {
			_ = local.Close()
			continue
		}
		go func() { _, _ = io.Copy(remote, local); _ = remote.Close() }()
		go func() { _, _ = io.Copy(local, remote); _ = local.Close() }()
	}
}

// kubectlExec runs kubectl. The test stands in for the kubelet, which exec and port-forward need.
const kubectlExec = `#!/bin/sh
case "$1" in
exec)
	shift
	target=$1
	shift 2
	printf '%s\n' "$target" "$@" | curl -sS --fail-with-body --data-binary @- "$KUBELET/exec"
	exit ;;
port-forward)
	echo "$2 $3" | curl -sS --fail-with-body --data-binary @- "$KUBELET/forward"
	exit ;;
esac
exec "$KUBE_PARTS/kubectl" "$@"
`

// testGuide runs the tutorial for Kubernetes word for word, in namespace default, and the blocks of
// other pages that use its installation.
func testGuide(t *testing.T, c *kubekit.Cluster, binary string) {
	images := imagesOf(t, binary)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	images["vllm/vllm-openai:v0.23.0"] = podkit.Image{Files: map[string]string{"/usr/local/bin/vllm": self}, Entrypoint: []string{"/usr/local/bin/vllm", "serve"}}
	images["grapevine:NEW"] = images["grapevine:v1"]
	for _, name := range []string{"otel/opentelemetry-collector:0.145.0", "jaegertracing/jaeger:2.11.0"} { // no part of the test
		images[name] = podkit.Image{Absent: true}
	}
	x := &cluster{t: t, c: c, k: podkit.Open(t, c, images), namespace: "default", templates: map[string]string{}, pods: map[string][]*podkit.Pod{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec", x.exec)
	mux.HandleFunc("/forward", x.forward)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	tools := t.TempDir()
	if err := os.WriteFile(filepath.Join(tools, "kubectl"), []byte(kubectlExec), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binary, filepath.Join(tools, "grapevine")); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "PATH="+tools+":"+kubekit.Parts(t)+":"+os.Getenv("PATH"), "KUBECONFIG="+c.Kubeconfig("admin"), "KUBELET="+s.URL,
		"HELM_CACHE_HOME="+tools, "HELM_CONFIG_HOME="+tools, "HELM_DATA_HOME="+tools)
	for _, page := range []struct {
		path  string
		on    string // of the blocks
		least int    // number of blocks
	}{
		{"../docs/get-started/kubernetes.md", "", 6},
		{"../docs/tasks/monitor.md", "kubernetes", 4},
		{"../docs/tasks/trace.md", "kubernetes", 2},
		{"../docs/tasks/upgrade.md", "kubernetes", 2},
		{"../docs/tasks/argo-rollouts.md", "kubernetes", 2},
	} {
		if ran := x.follow(page.path, page.on, env); ran < page.least {
			t.Errorf("%s: %d blocks were run, want %d or more", page.path, ran, page.least)
		}
	}
}

// follow runs the blocks of a page that are for an environment, and returns their number.
func (x *cluster) follow(path, on string, env []string) (ran int) {
	t := x.t
	t.Helper()
	blocks, err := guide.Parse(readFile(t, path))
	if err != nil {
		t.Fatal(err)
	}
	exports := ""
	for _, b := range blocks {
		if b.Skip != "" || b.On != on {
			if b.Skip != "" {
				t.Logf("%s:%d: not run: %s", path, b.Line, b.Skip)
			}
			continue
		}
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", exports+b.Script)
		cmd.Dir, cmd.Env = "..", env
		out, err := x.during(cmd)
		if err != nil {
			t.Fatalf("%s:%d: %v\n%s%s", path, b.Line, err, b.Script, out)
		}
		t.Logf("%s:%d:\n%s", path, b.Line, out)
		if line := guide.Missing(b.Output, out); line != "" {
			t.Errorf("%s:%d: the output has no line %q:\n%s", path, b.Line, line, out)
		}
		for line := range strings.Lines(b.Script) {
			if strings.HasPrefix(line, "export ") {
				exports += line
			}
		}
		ran++
	}
	return ran
}

// during runs a command. It reconciles until the command has ended, and one more time afterwards.
func (x *cluster) during(cmd *exec.Cmd) (output string, err error) {
	x.t.Helper()
	var out []byte
	ended := make(chan error, 1)
	go func() {
		var err error
		out, err = cmd.CombinedOutput()
		ended <- err
	}()
	for {
		select {
		case err := <-ended:
			x.reconcile()
			return string(out), err
		case <-time.After(100 * time.Millisecond):
			x.reconcile()
		}
	}
}
