//go:build kube

package deploy_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/bench"
	"github.com/grapevine-epp/grapevine/internal/lab/conformance"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
)

const many = 2000

// TestManyPods installs the chart for a pool of two thousand pods, each with an address that answers
// like an engine, and prints the resource use of a replica.
func TestManyPods(t *testing.T) {
	const namespace, span = "big", 10 * time.Second
	c := kubekit.Start(t, "inference")
	c.Namespace(namespace)
	podkit.NodeAddresses(t, "10.245.0.0/16")
	serveEngines(t)
	noise := strings.Repeat("x", 2000) // of annotations, as pods have
	addrs := make([]string, many)
	var wg sync.WaitGroup
	for part := range 4 {
		wg.Go(func() {
			for i := part; i < many; i += 4 {
				ip := fmt.Sprintf("10.245.%d.%d", i/250, i%250+1)
				addrs[i] = ip + ":8000"
				c.Pod(namespace, kubekit.Pod{Name: fmt.Sprintf("pod-%d", i), IP: ip, Labels: `{"app":"vllm"}`, Annotations: fmt.Sprintf(`{"example.org/noise":%q}`, noise)})
			}
		})
	}
	wg.Wait()

	binary := buildImage(t)
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	helm(t, c, "install", "llama", chart, "-n", namespace, "--set", "pool.create=true,pool.matchLabels.app=vllm")
	k := podkit.Open(t, c, imagesOf(t, binary))
	k.Expose(namespace)
	start := time.Now()
	p := k.Deployment(namespace, "llama-epp")
	ask := conformance.Options{Target: p.IP + ":9002", Endpoints: addrs, Model: "m", Timeout: time.Second}
	c.Until("a decision", func() bool {
		r, err := conformance.Run(t.Context(), ask, "destination-header")
		return err == nil && len(r.Results) == 1 && r.Results[0].Outcome == conformance.Pass
	})
	first := time.Since(start)
	p.WaitReady()
	counted := func(n int) {
		t.Helper()
		c.Until(fmt.Sprintf("%d endpoints", n), func() bool {
			return strings.Contains(get(t, "http://"+p.IP+":9090/metrics"), fmt.Sprintf("\ngrapevine_picker_endpoints %d\n", n))
		})
	}
	counted(many)
	pid := p.PID("epp")
	started := usage(t, pid)
	idle := over(t, c, pid, span, func(int) {})
	changed := 0
	churn := over(t, c, pid, span, func(i int) {
		c.Ready(namespace, fmt.Sprintf("pod-%d", i%many), strings.TrimSuffix(addrs[i%many], ":8000"), i/many%2 == 1)
		changed = i + 1
	})
	if changed > many {
		t.Fatalf("%d changes, want at most one of each pod", changed)
	}
	counted(many - changed)
	t.Logf("pods %d; first decision %.2f s after the start; CPU until all are read %.2f s; RSS %d MB; idle %.3f cores, RSS %d MB; %.0f changes a second %.3f cores, RSS %d MB; binary %.1f MB",
		many, first.Seconds(), started.CPU.Seconds(), started.RSS>>20, idle.cores, idle.rss>>20, float64(churn.changes)/span.Seconds(), churn.cores, churn.rss>>20, float64(info.Size())/1e6)
}

// serveEngines answers like an engine at port 8000 of every address of this machine.
func serveEngines(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:8000")
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
