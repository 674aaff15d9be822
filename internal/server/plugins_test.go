package server

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/testkit/wasmkit"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestWasmPluginInService: a module decides. While it fails, requests are placed all the same, and
// status, metrics and a problem report it. A new module takes effect by a reload and continues the
// counts, and one that does not load leaves the previous one in use.
func TestWasmPluginInService(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 2})
	dir := t.TempDir()
	o.Config = filepath.Join(dir, "epp.yaml")
	module := filepath.Join(dir, "plugin.wasm")
	build := func(body []byte) string { return string(wasmkit.Module(wasmkit.Options{Body: body})) }
	write(t, module, build(wasmkit.Scores(1, 0)))
	write(t, o.Config, fileHead+"plugins: [{type: wasm-scorer, name: own, parameters: {file: plugin.wasm}}]\n")
	s := open(t, o)
	eps := s.pool.Snapshot().Endpoints
	choose := func() string {
		t.Helper()
		d, err := s.scheduler.Choose(t.Context(), &request.Request{Kind: request.KindOther, Path: "/v1/realtime"})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Done(request.Outcome{Status: 200, Complete: true})
		return d.Endpoints[0]
	}
	replace := func(content string) error {
		write(t, module, content)
		return s.Reload(t.Context())
	}
	failing := func() (detail string) {
		for _, f := range s.Status().Problems {
			if f.Code == problems.Plugin {
				detail = f.Summary()
			}
		}
		return detail
	}
	const row = 6
	for range row {
		if got := choose(); got != eps[0].Address {
			t.Errorf("chosen %s, want %s, which the module prefers", got, eps[0].Address)
		}
	}
	hash := s.Status().Config.Hash
	if err := replace(build(wasmkit.Scores(0, 1))); err != nil {
		t.Fatal(err)
	}
	if s.Status().Config.Hash == hash {
		t.Error("another module does not change the hash of the configuration")
	}
	for range row {
		if got := choose(); got != eps[1].Address {
			t.Errorf("after a reload: chosen %s, want %s", got, eps[1].Address)
		}
	}
	if detail := failing(); detail != "" {
		t.Errorf("a working module has the problem %q", detail)
	}

	if err := replace(build(wasmkit.Trap)); err != nil {
		t.Fatal(err)
	}
	for range row {
		choose()
	}
	if detail := failing(); !strings.HasPrefix(detail, "own: trap: wasm error: unreachable") || !strings.Contains(detail, "calls pause") {
		t.Errorf("problem %q", detail)
	}
	if st := s.Status().Plugins; len(st) != 1 || st[0].Calls != 17 || st[0].Failures["trap"] != 5 || st[0].Failures["paused"] != 1 {
		t.Errorf("status %+v, want 17 calls, 5 traps and a call that did not run", st)
	}

	err := replace("no module")
	if err == nil || !strings.Contains(err.Error(), "epp.yaml:3:") || !strings.Contains(err.Error(), "it is not a WebAssembly module") {
		t.Errorf("a file that is no module: %v", err)
	}
	if detail := failing(); detail == "" {
		t.Error("the module in use is not that of before")
	}
	if err := replace(build(wasmkit.Scores(1, 0))); err != nil {
		t.Fatal(err)
	}
	if got := choose(); got != eps[0].Address {
		t.Errorf("after the last reload: chosen %s, want %s", got, eps[0].Address)
	}
	want := `
# HELP grapevine_plugin_calls_total Calls of WebAssembly plugins that ran.
# TYPE grapevine_plugin_calls_total counter
grapevine_plugin_calls_total{plugin="own"} 18
# HELP grapevine_plugin_failures_total Calls of WebAssembly plugins without a valid result, by reason: steps, trap, refused, result, start, busy or paused.
# TYPE grapevine_plugin_failures_total counter
grapevine_plugin_failures_total{plugin="own",reason="busy"} 0
grapevine_plugin_failures_total{plugin="own",reason="paused"} 1
grapevine_plugin_failures_total{plugin="own",reason="refused"} 0
grapevine_plugin_failures_total{plugin="own",reason="result"} 0
grapevine_plugin_failures_total{plugin="own",reason="start"} 0
grapevine_plugin_failures_total{plugin="own",reason="steps"} 0
grapevine_plugin_failures_total{plugin="own",reason="trap"} 5
`
	if err := testutil.GatherAndCompare(s.registry, strings.NewReader(want), "grapevine_plugin_calls_total", "grapevine_plugin_failures_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(s.registry, "grapevine_plugin_seconds"); n != 1 || err != nil {
		t.Errorf("%d histograms, %v", n, err)
	}
}
