package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// ports are the ports that manifests declare and refer to.
type ports struct {
	containers map[string]string // number by name, as written
	services   map[string]string // target by name
	used       map[string]string // file by name, of probes, network policies and monitors
}

var (
	containerPort = regexp.MustCompile(`\{name: ([a-z-]+), containerPort: ([^,}]+)`)
	servicePort   = regexp.MustCompile(`\{name: ([a-z-]+), port: [^,]+, targetPort: ([a-z-]+)`)
	usedPort      = regexp.MustCompile(`[{ ]port: ([a-z][a-z-]*)[,}]`)
)

func portsOf(t *testing.T, pattern string) ports {
	t.Helper()
	p := ports{map[string]string{}, map[string]string{}, map[string]string{}}
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(files), err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if m := containerPort.FindStringSubmatch(line); m != nil {
				p.containers[m[1]] = m[2]
			}
			if m := servicePort.FindStringSubmatch(line); m != nil {
				p.services[m[1]] = m[2]
			}
			if m := usedPort.FindStringSubmatch(line); m != nil {
				p.used[m[1]] = path
			}
		}
	}
	return p
}

// TestPortsAreDeclared checks that each port that a service, probe, network policy or monitor names
// is declared, and that the chart has all ports of the base.
func TestPortsAreDeclared(t *testing.T) {
	chart, base := portsOf(t, "helm/grapevine/templates/*.yaml"), portsOf(t, "kustomize/base/*.yaml")
	for name, p := range map[string]ports{"chart": chart, "base": base} {
		for service, target := range p.services {
			if p.containers[target] == "" {
				t.Errorf("%s: port %s of a service has the target %q, which no container declares", name, service, target)
			}
		}
		for used, path := range p.used {
			if p.containers[used] == "" && p.services[used] == "" {
				t.Errorf("%s: no container and no service declares port %s of %s", name, used, path)
			}
		}
		if p.containers["metrics"] == "" || p.services["http-metrics"] != "metrics" {
			t.Errorf("%s: metrics cannot be scraped: container ports %v, service ports %v", name, p.containers, p.services)
		}
	}
	for name, number := range base.containers {
		if chart.containers[name] != number {
			t.Errorf("container port %s is %q in the chart, and %q in the base", name, chart.containers[name], number)
		}
	}
	for name, target := range base.services {
		if chart.services[name] != target {
			t.Errorf("service port %s has target %q in the chart, and %q in the base", name, chart.services[name], target)
		}
	}
}
