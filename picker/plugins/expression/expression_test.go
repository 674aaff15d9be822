package expression

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/request"
)

type headerMap map[string]string

func (h headerMap) Get(name string) string { return h[name] }

var now = time.Unix(1_700_000_000, 0)

// testPool has n endpoints. Endpoint i has 10·i requests in flight, i waiting and a third of i
// running; odd ones are labelled gold, and endpoint 1 holds three quarters of every prompt. All but
// endpoint 0 have the custom gauge "heat" with the value i.
func testPool(n int) *endpoint.Pool {
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	specs := make([]endpoint.Spec, n)
	for i := range specs {
		specs[i] = endpoint.Spec{Name: fmt.Sprint("pod-", i), Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8000)}
		specs[i].Labels = map[string]string{endpoint.LabelEngine: "vllm"}
		if i%2 == 1 {
			specs[i].Labels["tier"], specs[i].Labels[endpoint.LabelRole] = "gold", "decode"
		}
	}
	pool.Set(specs)
	for i, ep := range pool.Snapshot().Endpoints {
		pool.LoadTracker().SetRemote(ep, endpoint.Load{Requests: int64(10 * i), Prefill: int64(1000 * i)})
		values := gauge.Values{Waiting: i, Running: i / 3, KVUse: float64(i) / float64(n)}
		if i > 0 {
			values.Custom = map[string]float64{"heat": float64(i)}
		}
		ep.SetGauges(endpoint.Gauges{At: now, Values: values})
	}
	return pool
}

func testCycle(pool *endpoint.Pool, r *request.Request) *cycle.Cycle {
	match := func(_ context.Context, _ *request.Request, eps []*endpoint.Endpoint, held []cycle.PrefixMatch) {
		if len(eps) > 1 {
			held[1].Run.Tokens[block.TierGPU] = int32(r.InputTokens * 3 / 4)
		}
	}
	return cycle.New(cycle.Options{Pool: pool, Match: match, Now: now, Seed: 1}, r)
}

func testRequest() *request.Request {
	return &request.Request{
		Kind: request.KindChat, Path: "/v1/chat/completions", Model: "m", InputTokens: 400, MaxTokens: 64, Stream: true, Priority: 3, FairnessID: "blue",
		Headers: headerMap{"x-tier": "gold", "x-long": strings.Repeat("a", longest+1)},
	}
}

func TestFilter(t *testing.T) {
	pool := testPool(4)
	for source, want := range map[string]string{
		"true":  "0123",
		"false": "",
		`endpoint.labels["tier"] == request.headers["x-tier"]`:                  "13",
		`request.headers["x-tier"] != "gold" || endpoint.labels["tier"] == "x"`: "",
		`"tier" in endpoint.labels`:                                             "13",
		`request.headers["absent"] == "" && !("absent" in request.headers)`:     "0123",
		`request.headers["x-long"] == ""`:                                       "0123",
		`load.waiting < 2`:                                                      "01",
		`load.waiting < 1.5`:                                                    "01",
		`load.inflight >= 20 && load.kv_usage >= 0.5`:                           "23",
		`load.inflight_tokens > 2500`:                                           "3",
		`load.running == 1`:                                                     "3",
		`prefix.ratio > 0.7 && prefix.cached_tokens == 300`:                     "1",
		`request.model == "m" && request.stream && request.priority == 3`:       "0123",
		`request.prompt_tokens == 400 && request.max_tokens == 64`:              "0123",
		`request.fairness_id == "blue" && request.path.startsWith("/v1/")`:      "0123",
		`request.adapter == ""`:                                                 "0123",
		`endpoint.name in ["pod-1", "pod-2"]`:                                   "12",
		`endpoint.address == "10.0.0.2:8000" && endpoint.engine == "vllm"`:      "2",
		`endpoint.role == "decode"`:                                             "13",
		`endpoint.name.matches("-[03]$")`:                                       "03",
		`"heat" in load.gauges`:                                                 "123",
		`"heat" in load.gauges && load.gauges["heat"] > 1.5`:                    "23",
		`"cold" in load.gauges`:                                                 "",
		`1 / load.waiting == 1`:                                                 "01", // fails for 0, which is kept
	} {
		p, err := NewFilter(source, false)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		c := testCycle(pool, testRequest())
		keep := []bool{true, true, true, true}
		p.Filter(c, keep)
		got := ""
		for k := range keep {
			if keep[k] {
				got += fmt.Sprint(k)
			}
		}
		if got != want {
			t.Errorf("%s: kept %q, want %q", source, got, want)
		}
		if failed := strings.Contains(source, "/ load"); failed != (c.Failures() == 1) {
			t.Errorf("%s: %d failures counted", source, c.Failures())
		}
		c.Free()
	}
	soft, err := NewFilter("load.waiting > 100", true)
	if err != nil {
		t.Fatal(err)
	}
	c := testCycle(pool, testRequest())
	defer c.Free()
	keep := []bool{true, true, true, true}
	if soft.Filter(c, keep); !keep[0] || !keep[3] {
		t.Errorf("fallbackOnEmpty: kept %v, want all", keep)
	}
}

func TestScorer(t *testing.T) {
	pool := testPool(4)
	for _, tc := range []struct {
		source    string
		normalize bool
		want      []float64
		failures  int
	}{
		{"0.5", false, []float64{.5, .5, .5, .5}, 0},
		{"load.waiting", false, []float64{0, 1, 1, 1}, 0}, // clamped
		{"load.waiting", true, []float64{0, 1. / 3, 2. / 3, 1}, 0},
		{"-load.waiting", true, []float64{1, 2. / 3, 1. / 3, 0}, 0},
		{"7", true, []float64{1, 1, 1, 1}, 0},
		{`-load.gauges["heat"]`, true, []float64{0, 1, .5, 0}, 1}, // endpoint 0 has none
		{"load.waiting > 1", false, []float64{0, 0, 1, 1}, 0},
		{"1.0 / double(load.inflight + 10)", false, []float64{.1, .05, 1. / 30, .025}, 0},
		{`endpoint.labels["tier"] == "gold" ? 1.0 - load.kv_usage : 0.25`, false, []float64{.25, .75, .25, .25}, 0},
		{"1 / (load.waiting - 1)", true, []float64{0, 0, 1, .5}, 1},              // −1, failed, 1, 0
		{"1.0 / (double(load.waiting) - 1.0)", false, []float64{0, 0, 1, .5}, 1}, // infinite at 1
	} {
		p, err := NewScorer(tc.source, tc.normalize)
		if err != nil {
			t.Errorf("%s: %v", tc.source, err)
			continue
		}
		c := testCycle(pool, testRequest())
		got := make([]float64, 4)
		p.Score(c, got)
		for k := range got {
			if d := got[k] - tc.want[k]; d > 1e-9 || d < -1e-9 {
				t.Errorf("%s: scores %v, want %v", tc.source, got, tc.want)
				break
			}
		}
		if c.Failures() != tc.failures {
			t.Errorf("%s: %d failures, want %d", tc.source, c.Failures(), tc.failures)
		}
		c.Free()
	}
}

// TestErrors: a wrong expression is refused at load, with its position and the nearest name.
func TestErrors(t *testing.T) {
	for source, want := range map[string]string{
		"":                                       "expression is required",
		"load.wating < 2":                        `expression is invalid at line 1, column 1: unknown name load.wating | did you mean "load.waiting"?`,
		"true &&\n  request.modl == 'x'":         `expression is invalid at line 2, column 3: unknown name request.modl | did you mean "request.model"?`,
		"loud.waiting < 2":                       `unknown name loud.waiting | did you mean "load.waiting"?`,
		"load.nothing_like_it == 1":              "| names are load.inflight, load.inflight_tokens, load.waiting, load.running, load.kv_usage",
		"load.waiting < ":                        "expression is invalid at line 1, column 16: Syntax error",
		`load.waiting < "a"`:                     "expression is invalid at line 1, column 14: found no matching overload",
		"load.waiting":                           "expression must result in bool, not int",
		`endpoint.labels.exists(k, k == "a")`:    "expression is invalid at line 1",
		"true" + strings.Repeat(" && true", 600): "has 4804 characters, the limit is 4096",
		strings.Repeat(`request.headers["a"].matches("(a*)*b") || `, 80) + "false": "units, the limit is 5000",
	} {
		_, err := NewFilter(source, false)
		if err == nil {
			t.Errorf("%q: no error", source)
			continue
		}
		got := err.Error()
		var list Errors
		if errors.As(err, &list) && list[0].Hint != "" {
			got += " | " + list[0].Hint
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q:\n got %s\nwant %s", source, got, want)
		}
	}
	if _, err := NewScorer("endpoint.name", false); err == nil || !strings.Contains(err.Error(), "must result in double, int, bool, not string") {
		t.Errorf("a text as score: %v", err)
	}
}

// TestNoLoops: an expression cannot contain macros, so its length bounds its cost.
func TestNoLoops(t *testing.T) {
	for _, source := range []string{`[1, 2].all(x, x > 0)`, `[1].map(x, x) == [1]`, `has(endpoint.labels.a)`} {
		if _, err := NewFilter(source, false); err == nil {
			t.Errorf("%s: no error", source)
		}
	}
}

// FuzzCompile: no text makes the compiler or an evaluation panic, and every error names the
// parameter.
func FuzzCompile(f *testing.F) {
	for _, source := range []string{"", "true", "load.wating", "request.headers['x'] == endpoint.labels[\"y\"]", "1/0", "((", "a.b.c.d", "\"\\u00", "prefix.ratio > 0.5 ? 1 : 2"} {
		f.Add(source)
	}
	pool := testPool(3)
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, source string) {
		p, err := NewScorer(source, false)
		if err != nil {
			if !strings.Contains(err.Error(), "expression") {
				t.Errorf("%q: %v", source, err)
			}
			return
		}
		c := testCycle(pool, testRequest())
		defer c.Free()
		scores := make([]float64, 3)
		p.Score(c, scores)
		for _, s := range scores {
			if !(s >= 0 && s <= 1) {
				t.Errorf("%q: scores %v, want 0 to 1", source, scores)
			}
		}
	})
}

// BenchmarkExpression measures one decision's evaluations.
func BenchmarkExpression(b *testing.B) {
	filterSource := `request.headers["x-tier"] != "gold" || endpoint.labels["tier"] == "gold"`
	scorerSource := `prefix.ratio * 0.7 + (1.0 - load.kv_usage) * 0.3`
	for _, n := range []int{8, 100} {
		pool := testPool(n)
		c := testCycle(pool, testRequest())
		f, err := NewFilter(filterSource, false)
		if err != nil {
			b.Fatal(err)
		}
		s, err := NewScorer(scorerSource, false)
		if err != nil {
			b.Fatal(err)
		}
		keep, scores := make([]bool, n), make([]float64, n)
		b.Run(fmt.Sprintf("filter/endpoints=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f.Filter(c, keep)
			}
		})
		b.Run(fmt.Sprintf("scorer/endpoints=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Score(c, scores)
			}
		})
		c.Free()
	}
}

func TestGauges(t *testing.T) {
	for source, want := range map[string]string{
		`load.waiting`: "[]",
		`load.gauges["b"] + (load.gauges["a"] > 1.0 ? 1.0 : load.gauges["b"])`: "[a b]",
		`"c" in load.gauges`:              "[c]",
		`request.headers["d"] == "x"`:     "[]",
		`load.gauges[request.model] > .5`: "[]",
		`load.gauges[`:                    "[]",
	} {
		if got := fmt.Sprint(Gauges(source)); got != want {
			t.Errorf("%s: %s, want %s", source, got, want)
		}
	}
}
