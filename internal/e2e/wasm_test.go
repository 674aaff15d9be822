package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/explain"
	"github.com/grapevine-epp/grapevine/internal/parts"
	pickerconfig "github.com/grapevine-epp/grapevine/picker/config"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

const wasmExamples = "../../docs/examples/wasm/"

// buildWasm builds the example plugins as docs/tasks/wasm.md does, into a folder with their
// configuration.
func buildWasm(tb testing.TB) (file string) {
	tb.Helper()
	dir := tb.TempDir()
	run := func(folder string, env []string, name string, args ...string) {
		tb.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = wasmExamples+folder, append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			tb.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
	}
	run("go", []string{"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0"}, "go", "build", "-buildmode=c-shared", "-o", filepath.Join(dir, "session.wasm"), ".")
	run("assemblyscript", nil, parts.AssemblyScript(tb), "tierfilter.ts", "-O", "--use", "abort=", "-o", filepath.Join(dir, "tierfilter.wasm"))
	text, err := os.ReadFile(wasmExamples + "epp.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	file = filepath.Join(dir, "epp.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

// TestWasmPlugins builds the example plugins in Go and AssemblyScript and checks that their decisions
// are those of the page about them, and that real requests behind a real Envoy follow them.
func TestWasmPlugins(t *testing.T) {
	file := buildWasm(t)
	wasmGuide(t, file)

	binary := filepath.Join(t.TempDir(), "grapevine")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/grapevine").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	engines, url := behindEnvoy(t, binary, file, []string{"{tier: silver}", "{tier: gold}", "{}"})
	counts := func() (list [3]int) {
		for i, e := range engines.Engines() {
			list[i] = finished(e)
		}
		return list
	}
	for i := range 4 {
		complete(t, url, i, map[string]string{"x-tier": "gold"})
	}
	if got := counts(); got != [3]int{0, 4, 0} {
		t.Errorf("gold requests: engines served %v, want those of the gold engine", got)
	}
	used := map[int]bool{}
	for session := range 12 {
		before := counts()
		for i := range 3 {
			complete(t, url, 100*session+i, map[string]string{"x-session-id": "session " + strconv.Itoa(session)})
		}
		for i, n := range counts() {
			switch n - before[i] {
			case 0:
			case 3:
				used[i] = true
			default:
				t.Errorf("session %d: engines served %v, before %v: it moved", session, counts(), before)
			}
		}
	}
	if len(used) < 2 {
		t.Errorf("all sessions are at one engine")
	}
}

// wasmGuide makes the decisions that the page describes.
func wasmGuide(t *testing.T, file string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/tasks/wasm.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if indented := strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n   "); !strings.Contains(string(page), indented) {
		t.Error("docs/tasks/wasm.md does not show docs/examples/wasm/epp.yaml")
	}
	o := explain.Offline{Config: file, Fleet: "../../docs/examples/expressions/fleet.json", Tokens: 6000, Seed: 1, Now: time.Unix(1_800_000_000, 0)}
	for _, c := range []struct{ header, value, want string }{
		{"x-tier", "gold", "10.0.0.1:8000"}, {"x-session-id", "alice", "10.0.0.4:8000"}, {"x-session-id", "bob", "10.0.0.3:8000"},
	} {
		r := &request.Request{ID: "guide", Path: "/v1/chat/completions", Headers: oneHeader{c.header, c.value}}
		if c.header == "x-session-id" {
			r.Session = c.value
		}
		d, err := o.Decide(r)
		if err != nil {
			t.Fatal(err)
		}
		address, _, _ := strings.Cut(c.want, ":")
		if d.Choice != c.want || !strings.Contains(string(page), address) {
			t.Errorf("%s %s: chosen %s, want %s, which the page names", c.header, c.value, d.Choice, c.want)
		}
	}
}

type oneHeader struct{ name, value string }

// Get implements request.Headers.
func (h oneHeader) Get(name string) string {
	if name == h.name {
		return h.value
	}
	return ""
}

// BenchmarkWasmPlugins measures the calls of the example plugins for one decision.
func BenchmarkWasmPlugins(b *testing.B) {
	c, problems := pickerconfig.Load(buildWasm(b), pickerconfig.Options{})
	if len(problems) > 0 {
		b.Fatal(problems)
	}
	r := &request.Request{Session: "alice", Headers: oneHeader{"x-tier", "gold"}}
	for _, n := range []int{8, 100, 1000} {
		pool := endpoint.NewPool(endpoint.PoolOptions{})
		specs := make([]endpoint.Spec, n)
		for i := range specs {
			specs[i] = endpoint.Spec{
				Name: fmt.Sprintf("vllm-%08d-abcde", i), Labels: map[string]string{"tier": "gold"},
				Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000),
			}
		}
		pool.Set(specs)
		cy := cycle.New(cycle.Options{Pool: pool, Now: time.Unix(1_800_000_000, 0), Seed: 1}, r)
		keep, scores := make([]bool, n), make([]float64, n)
		for name, call := range map[string]func(){
			"assemblyscript": func() { c.Profiles[0].Filters[0].Filter.Filter(cy, keep) },
			"go":             func() { c.Profiles[0].Scorers[0].Score(cy, scores) },
		} {
			b.Run(fmt.Sprintf("%s/endpoints=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					call()
				}
			})
		}
		cy.Free()
	}
	for _, s := range c.Sandboxes {
		if f := s.Report().LastFailure; f != "" {
			b.Errorf("%s: %s", s.Name, f)
		}
	}
}
