package envoyconf

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

// TestEnvoyAccepts: Envoy validates the rendered configurations.
func TestEnvoyAccepts(t *testing.T) {
	dir := t.TempDir()
	list := []Params{
		exampleParams(Resilient), exampleParams(Gateway),
		{Plaintext: true, ExtProc: []string{"localhost:9002"}, Endpoints: []string{"localhost:8000"}},
		{RequestBody: "STREAMED", ResponseBody: "BUFFERED_PARTIAL", EarlyBody: true, Retries: -1},
		{RequestBody: "STREAMED", Observe: true},
		{Gateways: []string{"192.0.2.1:80", "[2001:db8::1]:80"}},
		{Kind: Gateway, Gateways: []string{"192.0.2.1:443"}, GatewaySNI: "b.example.org"},
		{ResponseHeaders: []string{"x-endpoint=%UPSTREAM_REMOTE_ADDRESS%", `x-note="a" \\b: {c}`}, SubsetHeader: "x-endpoints", OTLP: "collector.example:4317"},
	}
	for i, p := range list {
		if p.ExtProc == nil {
			p.ExtProc, p.Endpoints = []string{"[::1]:9002"}, []string{"127.0.0.1:8000"}
		}
		out, err := Render(p)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, fmt.Sprint(i, ".yaml"))
		if err := os.WriteFile(file, out, 0o600); err != nil {
			t.Fatal(err)
		}
		if log, err := exec.Command(parts.Envoy(t), "--mode", "validate", "-c", file).CombinedOutput(); err != nil {
			t.Errorf("%+v: %v\n%s", p, err, log)
		}
	}
}
