//go:build kube

package deploy_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/internal/lab/bench"
	"github.com/grapevine-epp/grapevine/internal/lab/conformance"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

const many = 1000

// TestThousandPods runs the real binary on a pool of a thousand pods, each with an address that
// answers like an engine, and prints the resource use.
func TestThousandPods(t *testing.T) {
	c := kubekit.Start(t, "inference")
	c.Namespace("big")
	c.Create(kubeapi.Resource{Group: "inference.networking.k8s.io", Version: "v1", Plural: "inferencepools"}, "big",
		fmt.Sprintf(`{"apiVersion":"inference.networking.k8s.io/v1","kind":"InferencePool","metadata":{"name":"p"},
		"spec":{"selector":{"matchLabels":{"app":"vllm"}},"targetPorts":[{"number":%s}]}}`, engines(t)))
	port := c.Kubectl("get", "inferencepools.inference.networking.k8s.io", "p", "-n", "big", "-o", "jsonpath={.spec.targetPorts[0].number}")
	noise := strings.Repeat("x", 2000) // of annotations, as pods have
	addrs := make([]string, many)
	var wg sync.WaitGroup
	for part := range 4 {
		wg.Go(func() {
			for i := part; i < many; i += 4 {
				ip := fmt.Sprintf("127.1.%d.%d", i/250, i%250+1)
				addrs[i] = ip + ":" + port
				c.Pod("big", kubekit.Pod{Name: fmt.Sprintf("pod-%d", i), IP: ip, Labels: `{"app":"vllm"}`, Annotations: fmt.Sprintf(`{"example.org/noise":%q}`, noise)})
			}
		})
	}
	wg.Wait()

	binary := filepath.Join(t.TempDir(), "grapevine")
	if out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", binary, "../cmd/grapevine").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	listen, admin := parts.FreeAddress(t), parts.FreeAddress(t)
	cmd := exec.Command(binary, "serve", "--pool-name=p", "--pool-namespace=big", "--kubeconfig", c.Kubeconfig("admin"), "--plaintext",
		"--listen", listen, "--health", "-", "--admin", admin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	ask := conformance.Options{Target: listen, Plaintext: true, Endpoints: addrs, Model: "m", Timeout: time.Second}
	c.Until("a decision", func() bool {
		r, err := conformance.Run(t.Context(), ask, "destination-header")
		return err == nil && len(r.Results) == 1 && r.Results[0].Outcome == conformance.Pass
	})
	first := time.Since(start)
	c.Until("all endpoints", func() bool {
		out, err := exec.Command(binary, "status", "--admin", admin, "-o", "json").Output()
		return err == nil && strings.Contains(string(out), fmt.Sprintf(`"endpoints": %d`, many))
	})
	started := usage(t, cmd.Process.Pid)
	idle := over(t, c, cmd.Process.Pid, 20*time.Second, func(int) {})
	churn := over(t, c, cmd.Process.Pid, 20*time.Second, func(i int) {
		c.Ready("big", fmt.Sprintf("pod-%d", i%many), strings.TrimSuffix(addrs[i%many], ":"+port), i/many%2 == 1)
	})
	t.Logf("pods %d; first decision %.2f s after the start; CPU until all are read %.2f s; RSS %d MB; idle %.3f cores, RSS %d MB; %d changes a second %.3f cores, RSS %d MB; binary %.1f MB",
		many, first.Seconds(), started.CPU.Seconds(), started.RSS>>20, idle.cores, idle.rss>>20, churn.changes/20, churn.cores, churn.rss>>20, float64(info.Size())/1e6)
}

// engines starts a listener that answers like an engine at every loopback address, and returns its
// port.
func engines(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
			fmt.Fprint(w, "vllm:num_requests_running{model_name=\"m\"} 0\nvllm:num_requests_waiting{model_name=\"m\"} 0\nvllm:kv_cache_usage_perc{model_name=\"m\"} 0.1\n")
		case "/v1/models":
			fmt.Fprint(w, `{"object":"list","data":[{"id":"m","object":"model"}]}`)
		case "/health":
		default:
			http.NotFound(w, r)
		}
	})}
	go func() { _ = s.Serve(l) }() // it ends with the test
	t.Cleanup(func() { s.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func usage(t *testing.T, pid int) bench.Usage {
	t.Helper()
	u, err := bench.ReadUsage(pid)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// usedLoad is the resource use during a time of changes.
type usedLoad struct {
	cores   float64
	rss     int64
	changes int
}

// over makes changes for a time and measures the process.
func over(t *testing.T, c *kubekit.Cluster, pid int, d time.Duration, change func(int)) usedLoad {
	t.Helper()
	before, start := usage(t, pid), time.Now()
	n := 0
	c.Until("the time is over", func() bool { change(n); n++; return time.Since(start) > d })
	after := usage(t, pid)
	return usedLoad{cores: (after.CPU - before.CPU).Seconds() / time.Since(start).Seconds(), rss: after.RSS, changes: n}
}
