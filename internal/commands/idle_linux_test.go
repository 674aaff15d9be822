package commands

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/gate"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

// TestIdleWakeUps checks the wake-ups of idle replicas, alone and in a group of three, with eight engines.
// Loops with a period of their own are the usual cause of a failure: a ticker of 20 ms costs 100 to 250
// context switches per second. Arm timers only while there is something to wait for, and use
// internal/ticks for periods.
func TestIdleWakeUps(t *testing.T) {
	list := idleEngines(t, 8)
	for _, c := range []struct {
		name     string
		replicas int
		most     float64 // voluntary context switches per second and replica
	}{{"alone", 1, 80}, {"group of three", 3, 420}} {
		t.Run(c.name, func(t *testing.T) {
			pids := startIdle(t, list, c.replicas)
			// The quietest of several periods: probes, model lists and a late start are in some of them.
			best := make([]float64, len(pids))
			var all []string
			for try := range 6 {
				time.Sleep(time.Second)
				before := time.Now()
				var was []int
				for _, pid := range pids {
					was = append(was, voluntarySwitches(t, pid))
				}
				time.Sleep(2 * time.Second)
				good := true
				for i, pid := range pids {
					rate := float64(voluntarySwitches(t, pid)-was[i]) / time.Since(before).Seconds()
					all = append(all, strconv.Itoa(int(rate)))
					if try == 0 || rate < best[i] {
						best[i] = rate
					}
					good = good && best[i] <= c.most
				}
				if good {
					t.Logf("context switches per second: %s", strings.Join(all, " "))
					return
				}
			}
			t.Errorf("an idle replica has %.0f voluntary context switches per second (all: %s), want at most %.0f", best, strings.Join(all, " "), c.most)
		})
	}
}

// idleEngines serves engines without requests, and returns the path of an endpoints file.
func idleEngines(t *testing.T, n int) string {
	t.Helper()
	page := "vllm:num_requests_running{model_name=\"m\"} 0\nvllm:num_requests_waiting{model_name=\"m\"} 0\n" +
		"vllm:kv_cache_usage_perc{model_name=\"m\"} 0\n" + strings.Repeat("# HELP something of a page of real size\n", 500)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, page) })
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"object":"list","data":[{"id":"m"}]}`) })
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"version":"0.28.0"}`) })
	lis, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(lis) }()
	t.Cleanup(func() { _ = server.Close() })
	text := "endpoints:\n"
	for i := range n {
		text += fmt.Sprintf("- {name: engine-%d, address: 127.0.0.%d, port: %d, model: m}\n", i, i+1, lis.Addr().(*net.TCPAddr).Port)
	}
	list := filepath.Join(t.TempDir(), "endpoints.yaml")
	if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return list
}

// startIdle starts replicas, waits until they are ready and have met, and returns their process ids.
func startIdle(t *testing.T, list string, n int) (pids []int) {
	t.Helper()
	var gossip, admins []string
	for range n {
		gossip, admins = append(gossip, parts.FreeAddress(t)), append(admins, parts.FreeAddress(t))
	}
	for i := range n {
		args := []string{"serve", "--name", fmt.Sprint("r", i), "--endpoints", list, "--listen", "127.0.0.1:0", "--health", "-",
			"--admin", admins[i], "--plaintext", "--log-level", "error", "--probe-idle", "0", "--model-source", "off"}
		if n > 1 {
			args = append(args, "--cluster", "gossip", "--cluster-bind", gossip[i], "--cluster-stream-bind", parts.FreeAddress(t),
				"--cluster-join", strings.Join(gossip, ","))
		}
		cmd := exec.Command("grapevine", args...)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		pids = append(pids, cmd.Process.Pid)
	}
	for _, a := range admins {
		if err := awaitPage("http://"+a+"/readyz", time.Minute); err != nil {
			t.Fatalf("/readyz: %v", err)
		}
	}
	return pids
}

func voluntarySwitches(t *testing.T, pid int) int {
	t.Helper()
	sum, err := gate.WakeUps(pid)
	if err != nil || sum == 0 {
		t.Fatalf("process %d has no context switches: %v", pid, err)
	}
	return sum
}
