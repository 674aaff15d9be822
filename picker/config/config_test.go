package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/pd"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestLoad runs the files in testdata/load, each with a configuration and the result. Use -rewrite
// to update the results.
func TestLoad(t *testing.T) {
	datadriven.Walk(t, "testdata/load", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			o := Options{Table: pd.Table()}
			if d.Cmd != "load" {
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return outcome(t, d.Input, o)
		})
	})
}

func outcome(t *testing.T, input string, o Options) string {
	t.Helper()
	var b strings.Builder
	c, problems := Parse("f", []byte(input), o)
	if (c == nil) != (len(problems) > 0) {
		t.Fatalf("config %v and problems %v", c, problems)
	}
	for _, p := range problems {
		fmt.Fprintf(&b, "problem %s\n", p)
	}
	if c == nil {
		return b.String()
	}
	for _, n := range c.Notes {
		fmt.Fprintf(&b, "note %s\n", n)
	}
	if c.Flow != nil {
		q, s := c.Flow.Queue, c.Flow.Sizing
		fmt.Fprintf(&b, "flow requests %d bytes %d ttl %v empty %v limit %T evict %v capacity %d %d %d %d\n",
			q.MaxRequests, q.MaxBytes, q.TTL, q.EmptyTTL, c.Flow.Limit(), q.Evict, s.Unit, s.Requests, s.Tokens, s.Queue)
		for i, band := range append([]rules.Band{q.Default, q.Negative}, q.Bands...) {
			name := [...]string{"default", "negative"}[min(i, 1)]
			if i > 1 {
				name = fmt.Sprint(band.Priority)
			}
			fmt.Fprintf(&b, "band %s requests %d bytes %d fairness %d %v %v order %d\n",
				name, band.MaxRequests, band.MaxBytes, band.Fairness, band.Weights, band.Service, band.Ordering)
		}
	}
	if c.Discovery != nil {
		fmt.Fprintf(&b, "discovery %+v\n", *c.Discovery)
	}
	text, err := c.Effective()
	if err != nil {
		t.Fatal(err)
	}
	again, problems := Parse("effective", text, o)
	if len(problems) > 0 {
		t.Fatalf("the effective configuration has problems: %v\n%s", problems, text)
	}
	if diff := cmp.Diff(string(text), effectiveOf(t, again)); diff != "" || again.Hash() != c.Hash() {
		t.Fatalf("the effective configuration loads differently (-want +got):\n%s", diff)
	}
	b.Write(text)
	return b.String()
}

func effectiveOf(t *testing.T, c *Config) string {
	t.Helper()
	text, err := c.Effective()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDefault(t *testing.T) {
	c := Default(Options{})
	if len(c.Profiles) != 1 || len(c.Profiles[0].Scorers) != 1 || c.Profiles[0].Scorers[0].Name != defaultScorer || c.Profiles[0].Picker == nil {
		t.Errorf("default profile: %+v", c.Profiles[0])
	}
	if c.Rules.Handler == nil || c.Rules.Admit == nil || c.Detector == nil || c.Flow != nil || c.Discovery != nil || len(c.Notes) > 0 {
		t.Errorf("default: %+v", c)
	}
	if c.GaugeAge != 200*time.Millisecond {
		t.Errorf("GaugeAge = %v", c.GaugeAge)
	}
}

func TestLoadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "epp.yaml")
	if _, problems := Load(path, Options{}); len(problems) != 1 || problems[0].String() != path+": no such file or directory" {
		t.Errorf("absent file: %v", problems)
	}
	text, err := Default(Options{}).Effective()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	c, problems := Load(path, Options{})
	if len(problems) > 0 || c.Hash() != Default(Options{}).Hash() {
		t.Errorf("the default, written and read: %v", problems)
	}
}

const frame = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"

func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, problems := Parse("f", []byte(frame+text), Options{Table: pd.Table()})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return c
}

// TestTierWeights: tier weights reach the picker; later plugins take precedence.
func TestTierWeights(t *testing.T) {
	c := parse(t, `
plugins:
- {type: precise-prefix-cache-producer, parameters: {tierWeights: {cpu: 0.6}}}
- {type: precise-prefix-cache-scorer}
- {type: precise-prefix-cache-scorer, name: other, parameters: {tierWeights: {disk: 0.4, remote: 0}}}
schedulingProfiles:
- {name: main, plugins: [{pluginRef: precise-prefix-cache-scorer}, {pluginRef: other}]}
`)
	if diff := cmp.Diff(&cycle.TierWeights{1, .8, .4, 0}, c.Rules.Tiers); diff != "" {
		t.Error(diff)
	}
	if w := Default(Options{}).Rules.Tiers; w != nil {
		t.Errorf("by default: %v", w)
	}
}

// TestRules checks the rules passed to the picker.
func TestRules(t *testing.T) {
	c := parse(t, `
plugins:
- {type: queue-scorer}
- {type: prefix-cache-scorer, name: p}
- {type: decode-filter}
- {type: approx-prefix-cache-producer, parameters: {blockSizeTokens: 32, autoTune: false}}
- {type: session-id-producer, parameters: {headerName: X-Session}}
schedulingProfiles:
- name: main
  plugins:
  - {pluginRef: p, weight: 2.5}
  - {pluginRef: decode-filter}
  - {pluginRef: queue-scorer}
objectives:
- {name: batch, priority: -10}
- {name: chat}
modelRewrites:
- {model: chat, targets: [{model: a, weight: 90}, {model: b}]}
`)
	p := c.Profiles[0]
	if p.Name != "main" || len(p.Filters) != 1 || p.Scorers[0].Name != "p" || p.Scorers[0].Weight != 2.5 || p.Scorers[1].Weight != 1 {
		t.Errorf("profile: %+v", p)
	}
	if diff := cmp.Diff(map[string]int{"batch": -10, "chat": 0}, c.Rules.Names.Objectives); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]request.Rewrite{"chat": {{Model: "a", Weight: 90}, {Model: "b", Weight: 1}}}, c.Rules.Names.Rewrites); diff != "" {
		t.Error(diff)
	}
	want := plugin.Producer{BlockTokens: 32, FixedCapacity: true, Sessions: []request.SessionSource{{Header: "x-session"}}}
	if diff := cmp.Diff(want, c.Producer); diff != "" {
		t.Error(diff)
	}
}

// TestAdmit refuses sheddable requests only while the pool is saturated.
func TestAdmit(t *testing.T) {
	c := parse(t, "plugins:\n- {type: concurrency-detector, parameters: {maxConcurrency: 1}}\nsaturationDetector: {pluginRef: concurrency-detector}\nobjectives:\n- {name: batch, priority: -1}\n")
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set([]endpoint.Spec{{Addr: netip.MustParseAddrPort("10.0.0.1:8000")}})
	s, err := picker.New(picker.Options{Pool: pool, Rules: c.Rules})
	if err != nil {
		t.Fatal(err)
	}
	choose := func(objective string) (*request.Decision, error) {
		return s.Choose(t.Context(), &request.Request{Kind: request.KindChat, Model: "m", Objective: objective})
	}
	first, err := choose("batch")
	if err != nil {
		t.Fatalf("idle pool refused a request: %v", err)
	}
	_, err = choose("batch")
	var refusal *request.Error
	if !errors.As(err, &refusal) || refusal.Reason != request.ReasonSaturated {
		t.Errorf("saturated pool returned %v for a sheddable request", err)
	}
	second, err := choose("")
	if err != nil {
		t.Fatalf("saturated pool refused a request that is not sheddable: %v", err)
	}
	second.Done(request.Outcome{})
	first.Done(request.Outcome{})
	if d, err := choose("batch"); err != nil {
		t.Errorf("pool refused a request after it became idle: %v", err)
	} else {
		d.Done(request.Outcome{})
	}
}

// TestListedAdmitter checks that a listed admitter is in force: an endpoint without gauges counts as full.
func TestListedAdmitter(t *testing.T) {
	c := parse(t, "plugins:\n- {type: probabilistic-admitter}\nobjectives:\n- {name: batch, priority: -1}\n")
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set([]endpoint.Spec{{Addr: netip.MustParseAddrPort("10.0.0.1:8000")}})
	s, err := picker.New(picker.Options{Pool: pool, Rules: c.Rules})
	if err != nil {
		t.Fatal(err)
	}
	for objective, refused := range map[string]bool{"batch": true, "": false} {
		_, err := s.Choose(t.Context(), &request.Request{Kind: request.KindChat, Model: "m", Objective: objective})
		var refusal *request.Error
		if got := errors.As(err, &refusal) && refusal.Reason == request.ReasonSaturated; got != refused {
			t.Errorf("objective %q: %v, want refused: %t", objective, err, refused)
		}
	}
}

// TestAdmitTargets refuses sheddable requests that would miss their target at every endpoint.
func TestAdmitTargets(t *testing.T) {
	c := parse(t, "objectives:\n- {name: batch, priority: -1}\nsaturationDetector: {pluginRef: concurrency-detector}\nplugins:\n- {type: concurrency-detector}\n")
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set([]endpoint.Spec{{Addr: netip.MustParseAddrPort("10.0.0.1:8000")}})
	pool.Snapshot().Endpoints[0].SetRemoteCost(endpoint.Cost{Base: .1, PerToken: 1e-3, PerPair: 1e-12, Step: .01, PerSeq: 1e-3, PerContext: 1e-12, PrefillSeen: 20, DecodeSeen: 20})
	s, err := picker.New(picker.Options{Pool: pool, Rules: c.Rules, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(objective string, target time.Duration) bool {
		t.Helper()
		d, err := s.Choose(t.Context(), &request.Request{Kind: request.KindChat, Model: "m", Objective: objective, InputTokens: 400, SLOTTFT: target})
		var refusal *request.Error
		if errors.As(err, &refusal) && refusal.Reason == request.ReasonSaturated && strings.Contains(refusal.Message, "latency target") {
			return true
		}
		if err != nil {
			t.Fatal(err)
		}
		d.Done(request.Outcome{})
		return false
	}
	// The first token is expected after half a second.
	if !refused("batch", 400*time.Millisecond) || refused("batch", 600*time.Millisecond) || refused("batch", 0) || refused("", 400*time.Millisecond) {
		t.Error("admission does not follow the latency targets")
	}
}

func TestQuantity(t *testing.T) {
	for s, want := range map[string]float64{"1": 1, "1Gi": 1 << 30, "500M": 5e8, "1.5k": 1500, "1e3": 1000, "100m": .1, "2E": 2e18} {
		if got, ok := parseQuantity(s); !ok || got != want {
			t.Errorf("parseQuantity(%q) = %v, %v", s, got, ok)
		}
	}
	for _, s := range []string{"", "Gi", "1 Gi", "1gi", "0x10", "NaN", "Inf", "1KB", "-"} {
		if got, ok := parseQuantity(s); ok {
			t.Errorf("parseQuantity(%q) = %v", s, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/load/*")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds: ", err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range strings.Split(string(data), "\nload") {
			_, part, _ = strings.Cut(part, "\n")
			input, _, _ := strings.Cut(part, "----")
			f.Add(input)
		}
	}
	sweep.Fuzz(f, 4*sweep.Slow, func(t *testing.T, input string) {
		c, problems := Parse("f", []byte(input), Options{Table: pd.Table()})
		if (c == nil) != (len(problems) > 0) {
			t.Fatalf("config %v and problems %v", c, problems)
		}
		if c == nil {
			return
		}
		text, err := c.Effective()
		if err != nil {
			t.Fatal(err)
		}
		if _, problems := Parse("effective", text, Options{Table: pd.Table()}); len(problems) > 0 {
			t.Fatalf("effective configuration: %v\n%s", problems, text)
		}
	})
}
