//go:build kube

package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	suite "github.com/grapevine-epp/grapevine/internal/lab/conformance"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

var writeReports = flag.Bool("reports.write", false, "store the reports of TestReports in docs/conformance-reports")

// tested is a picker under test.
type tested struct {
	file, name      string
	version, source string
	program         string   // path
	run             []string // command as documented, with the pool as %s
	ports           []string // flags of the ext_proc, health and metrics listeners
	prefix          string   // of the value of these flags
}

// pickers returns all pickers. The others are built by internal/setup/gateways.sh.
func pickers(t *testing.T) []tested {
	const module = "sigs.k8s.io/gateway-api-inference-extension"
	others := []string{"--grpc-port", "--grpc-health-port", "--metrics-port"}
	return []tested{
		{"grapevine", "Grapevine", cmp.Or(os.Getenv("VERSION"), "dev"), "./cmd/grapevine", filepath.Join(testkit.Build(t, "grapevine"), "grapevine"),
			[]string{"grapevine", "serve", "--pool-name", "%s", "--pool-namespace", "conformance"}, []string{"--listen", "--health", "--admin"}, "127.0.0.1:"},
		{"lwepp", "lwepp", "v1.6.0", module + "/cmd/lwepp", os.Getenv("LWEPP"),
			[]string{"lwepp", "--pool-name", "%s", "--pool-namespace", "conformance"}, others, ""},
		{"gie-epp", "GIE EPP", "v1.5.0", module + "/cmd/epp", os.Getenv("GIE_EPP"),
			[]string{"epp", "--pool-name", "%s", "--pool-namespace", "conformance"}, others, ""},
	}
}

// TestReports runs the conformance suite of grapevine-lab against each picker. All pickers follow
// the same pool of a real API server, whose pods are simulated engines.
func TestReports(t *testing.T) {
	c := kubekit.Start(t, "inference-old", "inference")
	c.Namespace("conformance")
	engines, err := fleet.Open(fleet.Options{Engines: 3, Host: "127.0.9.1", Spread: true, Port: 8000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engines.Close() })
	pools := kubeapi.Resource{Group: "inference.networking.k8s.io", Version: "v1", Plural: "inferencepools"}
	for _, name := range []string{"engines", "nothing"} {
		c.Create(pools, "conformance", fmt.Sprintf(`{"apiVersion":"inference.networking.k8s.io/v1","kind":"InferencePool","metadata":{"name":%[1]q},
			"spec":{"selector":{"matchLabels":{"app":%[1]q}},"targetPorts":[{"number":8000}],"endpointPickerRef":{"name":"epp","port":{"number":9002}}}}`, name))
	}
	var list []string
	for i, e := range engines.Engines() {
		host, _, err := net.SplitHostPort(e.Addr())
		if err != nil {
			t.Fatal(err)
		}
		c.Pod("conformance", kubekit.Pod{Name: fmt.Sprint("engine-", i), IP: host, Labels: `{"app":"engines"}`, Ports: []int{8000}})
		list = append(list, e.Addr())
	}
	for _, p := range pickers(t) {
		t.Run(p.file, func(t *testing.T) {
			p.start(t, c, "nothing", 9012)
			command := p.start(t, c, "engines", 9002)
			report, err := suite.Run(t.Context(), suite.Options{
				Target: "127.0.0.1:9002", Health: "127.0.0.1:9003", Empty: "127.0.0.1:9012", Endpoints: list, Model: engines.Engines()[0].Options().Model,
				Timeout: 10 * time.Second, Wait: time.Minute, Picker: suite.Picker{Name: p.name, Version: p.version, Source: p.source, Command: command},
			})
			if err != nil {
				t.Fatal(err)
			}
			p.keep(t, report)
		})
	}
}

// start runs the picker for a pool with its listeners at three consecutive ports, and returns the
// documented part of its command line.
func (p *tested) start(t *testing.T, c *kubekit.Cluster, pool string, port int) string {
	t.Helper()
	if _, err := os.Stat(p.program); err != nil {
		t.Fatalf("the program %s is missing (%v): make conformance-reports builds it", p.file, err)
	}
	words := strings.Split(fmt.Sprintf(strings.Join(p.run, " "), pool), " ")
	args := words[1:]
	for i, name := range p.ports {
		args = append(args, name, p.prefix+fmt.Sprint(port+i))
	}
	var log parts.Output
	cmd := exec.Command(p.program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig("admin"), "POD_NAME=epp-0", "NAMESPACE=conformance")
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the log has the reason
		close(exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // may have ended
		<-exited
		if text := log.String(); t.Failed() || testing.Verbose() {
			t.Logf("%s for pool %s:\n%s", p.file, pool, text[max(0, len(text)-3000):])
		}
	})
	c.Until(p.file+" listens", func() bool {
		select {
		case <-exited:
			t.Fatalf("%s ended:\n%s", p.file, log.String())
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprint("127.0.0.1:", port))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return strings.Join(words, " ")
}

// keep stores the report, or compares its outcomes with the stored one.
func (p *tested) keep(t *testing.T, report *suite.Report) {
	t.Helper()
	path := filepath.Join("../../../docs/conformance-reports", p.file+".json")
	for _, r := range report.Results {
		t.Logf("%s %s %s: %s", r.Outcome, r.Level, r.ID, r.Seen)
	}
	if *writeReports {
		raw, err := json.MarshalIndent(report, "", "  ")
		if err == nil {
			err = os.WriteFile(path, append(raw, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var before suite.Report
	if err := json.Unmarshal(raw, &before); err != nil {
		t.Fatal(err)
	}
	was := map[string]suite.Outcome{}
	for _, r := range before.Results {
		was[r.ID] = r.Outcome
	}
	for _, r := range report.Results {
		if r.Outcome != was[r.ID] {
			t.Errorf("%s: %s (%s), the stored report has %q", r.ID, r.Outcome, r.Seen, was[r.ID])
		}
	}
}
