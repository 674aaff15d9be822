//go:build proxies

package proxies

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// Addresses of the engines and the replicas in deploy/envoy.
var (
	envoyEngines = []string{"10.0.1.1", "10.0.1.2", "fd00::13"}
	envoyPickers = []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}
)

// TestEnvoyExamples runs Envoy with the shipped configurations, unchanged, in front of engines and a
// replica at the addresses of these files. Every request is answered by the chosen engine.
func TestEnvoyExamples(t *testing.T) {
	var list strings.Builder
	list.WriteString("endpoints:\n")
	for _, ip := range append(envoyEngines, envoyPickers...) {
		if out, err := exec.Command("ip", "addr", "replace", ip+map[bool]string{true: "/128", false: "/32"}[strings.Contains(ip, ":")], "dev", "lo").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, ip := range envoyEngines {
		e, err := sim.Open(sim.Options{Addr: net.JoinHostPort(ip, "8000"), Speed: 100})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		fmt.Fprintf(&list, "- {address: %q, port: 8000}\n", ip)
	}
	dir := t.TempDir()
	endpoints := filepath.Join(dir, "endpoints.yaml")
	if err := os.WriteFile(endpoints, []byte(list.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	// Its default listeners are at all addresses.
	run(t, filepath.Join(testkit.Build(t, "grapevine"), "grapevine"), "serve", "--endpoints", endpoints)
	for _, name := range []string{"resilient.yaml", "gateway.yaml"} {
		t.Run(name, func(t *testing.T) {
			stop := run(t, parts.Envoy(t), "-c", "../../../deploy/envoy/"+name)
			defer stop()
			served := func() float64 { return sum(metrics(t), `grapevine_extproc_served_total{by="chosen"`) }
			testkit.Await(t, "a request is answered by the chosen engine", func() bool { return complete() == "" && served() > 0 })
			before := served()
			const n = 30
			for i := range n {
				if problem := complete(); problem != "" {
					t.Errorf("request %d: %s", i, problem)
				}
			}
			testkit.Await(t, "all answers are counted", func() bool { return served() >= before+n })
		})
	}
}

// run runs a program until stop, or the end of the test.
func run(t *testing.T, path string, args ...string) (stop func()) {
	t.Helper()
	var log parts.Output
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if text := log.String(); t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(path), text[max(0, len(text)-4000):])
		}
	}
	t.Cleanup(stop)
	return stop
}

// complete sends a request through Envoy and returns the problem with the answer, or "".
func complete() (problem string) { return testkit.Complete("http://"+clients, vocab.Name) }

// metrics returns the replica's metrics page, or "".
func metrics(t *testing.T) string {
	t.Helper()
	resp, err := http.Get("http://127.0.0.1:9090/metrics")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// sum adds the values of all series that begin with a prefix.
func sum(page, prefix string) (total float64) {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, prefix) {
			var v float64
			_, _ = fmt.Sscan(line[strings.LastIndexByte(strings.TrimSpace(line), ' ')+1:], &v) // the format of metrics
			total += v
		}
	}
	return total
}
