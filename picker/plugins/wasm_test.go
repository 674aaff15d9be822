package plugins

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/wasmkit"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// moduleFile writes a module and returns parameters that name it. more is JSON members.
func moduleFile(tb testing.TB, o wasmkit.Options, more ...string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "plugin.wasm")
	if err := os.WriteFile(path, wasmkit.Module(o), 0o600); err != nil {
		tb.Fatal(err)
	}
	name, err := json.Marshal(path)
	if err != nil {
		tb.Fatal(err)
	}
	return "{" + strings.Join(append([]string{`"file":` + string(name)}, more...), ",") + "}"
}

func wasmFleet() *fleet {
	return newFleet(
		one{labels: map[string]string{"tier": "gold"}, gauges: &endpoint.Gauges{Values: gauge.Values{Waiting: 1, KVUse: .25}}, load: endpoint.Load{Requests: 3}},
		one{labels: map[string]string{"tier": "silver"}, gauges: &endpoint.Gauges{Values: gauge.Values{Waiting: 0, KVUse: .75, Custom: map[string]float64{"heat": .5}}}, held: 50},
		one{gauges: &endpoint.Gauges{Values: gauge.Values{Waiting: 4, KVUse: 2}}},
	)
}

// TestWasmFacts: a module gets the facts that it names, as numbers in its order.
func TestWasmFacts(t *testing.T) {
	for fact, want := range map[string][]float64{
		"load.kv_usage":                {.25, .75, 1}, // scores are cut at 1
		"prefix.ratio":                 {0, .5, 0},
		`load.gauges["heat"]`:          {.25, .5, .25}, // the last ones are missing: onError
		"load.waiting load.kv_usage":   {1, 0, 1},
		"request.stream load.kv_usage": {.25, .75, 1},
	} {
		n := len(strings.Fields(fact))
		if strings.Contains(fact, "request.") {
			n--
		}
		o := wasmkit.Options{Facts: strings.Fields(fact), Body: wasmkit.Copy(false, n)}
		if got := wasmFleet().scores(t, ask(100), "wasm-scorer", moduleFile(t, o, `"onError":0.25`)); !near(got, want) {
			t.Errorf("%s: scores %v, want %v", fact, got, want)
		}
	}
	o := wasmkit.Options{Facts: []string{"load.waiting"}, Body: wasmkit.Copy(false, 1)}
	if got := wasmFleet().scores(t, ask(100), "wasm-scorer", moduleFile(t, o, `"normalize":true`)); !near(got, []float64{.25, 0, 1}) {
		t.Errorf("normalized scores %v", got)
	}
	p := build(t, "wasm-scorer", moduleFile(t, wasmkit.Options{Facts: []string{`load.gauges["heat"]`}, Body: wasmkit.Copy(false, 1)}))
	if fmt.Sprint(p.Gauges) != "[heat]" {
		t.Errorf("gauges %v", p.Gauges)
	}
}

// TestWasmTexts: labels and headers arrive as texts.
func TestWasmTexts(t *testing.T) {
	// An endpoint is kept if its tier has as many bytes as the header.
	body := []byte{
		0x02, 0x40, 0x03, 0x40, 0x20, 4, 0x20, 2, 0x4f, 0x0d, 1, // for k < n
		0x20, 3, 0x20, 4, 0x6a, // keep + k
		0x20, 1, 0x20, 4, 0x41, 3, 0x74, 0x6a, 0x28, 2, 4, // the length of the label
		0x20, 0, 0x28, 2, 4, 0x46, 0x3a, 0, 0, // equals that of the header
		0x20, 4, 0x41, 1, 0x6a, 0x21, 4, 0x0c, 0, 0x0b, 0x0b, 0x41, 0,
	}
	o := wasmkit.Options{Filter: true, Facts: []string{`request.headers["x-tier"]`, `endpoint.labels["tier"]`}, Body: body}
	for header, want := range map[string]string{"1234": "0", "123456": "1", "": "2"} {
		r := ask(100)
		r.Headers = headerMap{"x-tier": header}
		params := moduleFile(t, o, `"headers":["X-Tier"]`, `"labels":["tier"]`)
		if got := wasmFleet().kept(t, r, "wasm-filter", params); got != want {
			t.Errorf("header %q: kept %q, want %q", header, got, want)
		}
	}
}

// TestWasmFilter: a filter keeps the endpoints that the module keeps, and has its rule for failures.
func TestWasmFilter(t *testing.T) {
	good := wasmkit.Options{Filter: true, Facts: []string{"load.kv_usage"}, Body: wasmkit.Copy(true, 1)}
	none, bad := good, good
	none.Facts, bad.Body = []string{"request.priority", "prefix.ratio"}, wasmkit.Trap
	for _, c := range []struct {
		o          wasmkit.Options
		more, want string
	}{
		{good, `"onError":"keep"`, "12"},
		{none, `"onError":"keep"`, ""},
		{none, `"fallbackOnEmpty":true`, "012"},
		{bad, `"onError":"keep"`, "012"},
		{bad, `"onError":"drop"`, ""},
		{bad, `"onError":"drop","fallbackOnEmpty":true`, "012"},
	} {
		if got := wasmFleet().kept(t, ask(100), "wasm-filter", moduleFile(t, c.o, c.more)); got != c.want {
			t.Errorf("%s: kept %q, want %q", c.more, got, c.want)
		}
	}
}

// TestWasmFailures: a failed call gives all endpoints the same score, and the plugin reports it.
func TestWasmFailures(t *testing.T) {
	for reason, body := range map[string][]byte{"steps": wasmkit.Spin, "trap": wasmkit.Trap, "refused": wasmkit.Refuse, "result": wasmkit.Scores(math.NaN(), math.NaN(), math.NaN())} {
		params := moduleFile(t, wasmkit.Options{Facts: []string{"load.waiting"}, Body: body}, `"onError":0.5`, `"maxInstructions":100000`)
		p := build(t, "wasm-scorer", params)
		c := wasmFleet().cycle(ask(100))
		got := make([]float64, 3)
		p.Scorer.Score(c, got)
		c.Free()
		if !near(got, []float64{.5, .5, .5}) {
			t.Errorf("%s: scores %v", reason, got)
		}
		r := p.Sandbox.Report()
		if r.Failures[reason] != 1 || r.Calls != 1 || r.Seconds <= 0 || r.Buckets[.01] > 1 || !r.FailedAt.Equal(t0) || !strings.HasPrefix(r.LastFailure, reason+": ") {
			t.Errorf("%s: report %+v", reason, r)
		}
		fresh := build(t, "wasm-scorer", params)
		fresh.Sandbox.Continue(p.Sandbox)
		fresh.Sandbox.Continue(fresh.Sandbox)
		if r := fresh.Sandbox.Report(); r.Failures[reason] != 1 || r.Calls != 1 {
			t.Errorf("%s: continued report %+v", reason, r)
		}
	}
}

// TestWasmErrors: wrong parameters, and modules that cannot be used, are refused with the parameter.
func TestWasmErrors(t *testing.T) {
	good := wasmkit.Options{Facts: []string{`endpoint.labels["tier"]`}, Body: wasmkit.Nothing}
	facts := func(names ...string) wasmkit.Options { return wasmkit.Options{Facts: names, Body: wasmkit.Nothing} }
	for _, c := range []struct{ params, want string }{
		{`{}`, "parameter file is required"},
		{`{"file":"missing.wasm"}`, "parameter file cannot be read: open missing.wasm: no such file"},
		{moduleFile(t, good, `"memoryLimit":"2Ki"`), "parameter memoryLimit must be a size from 64Ki to 1Gi"},
		{moduleFile(t, good, `"memoryLimit":"64Ki"`), "it starts with 1024 KiB of memory, the limit is 64 KiB: raise memoryLimit"},
		{moduleFile(t, good, `"maxInstructions":0`), "parameter maxInstructions must be from 1"},
		{moduleFile(t, good, `"onError":2`), "parameter onError must be from 0 to 1"},
		{moduleFile(t, good), "parameter labels must list tier, which the module reads"},
		{moduleFile(t, facts(`request.headers["x"]`), `"headers":["y"]`), "parameter headers must list x, which the module reads"},
		{moduleFile(t, facts("load.wating")), "parameter file names a module that cannot be used, "},
		{moduleFile(t, facts("load.wating")), "there is no fact load.wating"},
		{moduleFile(t, facts("load.gauges")), "the fact load.gauges needs a name"},
		{moduleFile(t, facts(`load.waiting["a"]`)), "the fact load.waiting takes no name"},
		{moduleFile(t, facts("load.waiting"), `"config":"x"`), "it takes no config"},
		{moduleFile(t, wasmkit.Options{Body: wasmkit.Nothing, Start: wasmkit.Int(wasmkit.TextAt), Text: "no such tier"}), "parameter config is refused by the module: no such tier"},
		{moduleFile(t, good, `"sha256":"00"`), "parameter sha256 is not the checksum of "},
	} {
		if _, err := try("wasm-scorer", c.params); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	if _, err := try("wasm-filter", moduleFile(t, good, `"onError":"ignore"`)); err == nil || !strings.Contains(err.Error(), "onError must be keep or drop") {
		t.Errorf("%v", err)
	}
}

// TestWasmAllocations: a call does not allocate.
func TestWasmAllocations(t *testing.T) {
	fl := bigFleet(100)
	o := wasmkit.Options{Facts: []string{"load.kv_usage", "prefix.ratio", `endpoint.labels["zone"]`, "request.model"}, Body: wasmkit.Copy(false, 3)}
	scorer := build(t, "wasm-scorer", moduleFile(t, o, `"labels":["zone"]`)).Scorer
	o.Filter, o.Body = true, wasmkit.Copy(true, 3)
	filter := build(t, "wasm-filter", moduleFile(t, o, `"labels":["zone"]`)).Filter
	c := fl.cycle(ask(5000))
	defer c.Free()
	scores, keep := make([]float64, c.Len()), make([]bool, c.Len())
	for name, run := range map[string]func(){"scorer": func() { scorer.Score(c, scores) }, "filter": func() { filter.Filter(c, keep) }} {
		run()
		if n := testing.AllocsPerRun(100, run); n > .5 { // the race detector empties pools at random
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// BenchmarkWasm measures one decision's call. The module is the smallest possible: it copies a fact.
func BenchmarkWasm(b *testing.B) {
	for _, n := range []int{8, 100, 1000} {
		for name, facts := range map[string][]string{
			"numbers": {"load.kv_usage", "prefix.ratio", "load.inflight", "load.waiting"},
			"texts":   {"load.kv_usage", `endpoint.labels["zone"]`, `request.headers["x-tier"]`},
		} {
			own := len(facts)
			if name == "texts" {
				own--
			}
			p := build(b, "wasm-scorer", moduleFile(b, wasmkit.Options{Facts: facts, Body: wasmkit.Copy(false, own)}, `"labels":["zone"]`, `"headers":["x-tier"]`))
			b.Run(fmt.Sprintf("%s/endpoints=%d", name, n), func(b *testing.B) { benchScorer(b, p, n) })
		}
	}
}

func benchScorer(b *testing.B, p plugin.Plugin, n int) {
	r := ask(5000)
	r.Headers = headerMap{"x-tier": "gold"}
	c := bigFleet(n).cycle(r)
	defer c.Free()
	scores := make([]float64, c.Len())
	score(b, p.Scorer, c, scores)
	if f := p.Sandbox.Report(); f.LastFailure != "" {
		b.Fatal(f.LastFailure)
	}
}

func score(b *testing.B, s cycle.Scorer, c *cycle.Cycle, scores []float64) {
	b.ReportAllocs()
	for b.Loop() {
		s.Score(c, scores)
	}
}
