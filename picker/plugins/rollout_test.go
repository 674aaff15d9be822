package plugins

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// revisionFleet has 9 decode and 2 prefill endpoints of revision A, and one of each of B.
func revisionFleet() *fleet {
	var list []one
	add := func(revision, role string, n int) {
		for range n {
			list = append(list, one{labels: map[string]string{endpoint.LabelRevision: revision, "disaggregatedset.x-k8s.io/role": role, "app": "x"}})
		}
	}
	add("A", "prefill", 2)
	add("A", "decode", 9)
	add("B", "prefill", 1)
	add("B", "decode", 1)
	add("C", "decode", 5) // lacks a role
	list = append(list, one{labels: map[string]string{endpoint.LabelRevision: "B", "disaggregatedset.x-k8s.io/role": "decode", "app": "other"}}, one{})
	return newFleet(list...)
}

func rolloutOf(mode string) string {
	return `{"scope":{"labelSelector":"app in (x, y),app!=z"},"headerSelectors":[{"name":"r","headerName":"X-Rev","labelKey":"` + endpoint.LabelRevision +
		`","mode":"strict"}],"revisionGating":{"mode":"` + mode + `","requireRoles":{"values":["prefill","decode"]}}}`
}

// TestRolloutShares compares the shares of revisions with the published example of 2 and 10 engines.
func TestRolloutShares(t *testing.T) {
	fl := revisionFleet()
	for mode, want := range map[string]float64{"max-role": .1, "sum": 2. / 13} {
		f := build(t, "disaggregatedset-rollout-screener", rolloutOf(mode)).Filter
		const tries = 4000
		b := 0
		for range tries {
			c := fl.cycle(ask(10))
			switch got := left(c, f); got {
			case "012345678910":
			case "111218": // the last one is out of scope, and does not count
				b++
			default:
				t.Fatalf("%s: kept %s", mode, got)
			}
			c.Free()
		}
		if got := float64(b) / tries; math.Abs(got-want) > .03 {
			t.Errorf("%s: share of B %.3f, want %.3f", mode, got, want)
		}
	}
}

func TestRolloutChoices(t *testing.T) {
	fl := revisionFleet()
	kept := func(revision, mode string) string {
		r := ask(10)
		r.Headers = headerMap{"x-rev": revision}
		return fl.kept(t, r, "disaggregatedset-rollout-screener", rolloutOf(mode))
	}
	for _, tt := range []struct{ revision, mode, want string }{
		{"B", "sum", "111218"}, {"C", "sum", ""}, {"D", "sum", ""}, {"C", "disabled", "1314151617"},
		{"", "disabled", "012345678910111213141516171819"},
	} {
		if got := kept(tt.revision, tt.mode); got != tt.want {
			t.Errorf("header %q, mode %s: kept %s, want %s", tt.revision, tt.mode, got, tt.want)
		}
	}
	f := build(t, "disaggregatedset-rollout-screener", rolloutOf("sum")).Filter
	for range 50 { // the endpoint chosen before fixes the revision
		c := fl.cycle(ask(10))
		c.Peer = fl.pool.Snapshot().Endpoints[12]
		if got := left(c, f); got != "111218" {
			t.Fatalf("next to an endpoint of B: kept %s", got)
		}
		c.Free()
	}
}

func TestLabelSelectorText(t *testing.T) {
	for text, want := range map[string]string{
		"a=b": "[{a In [b]}]", "a == b , c!=d": "[{a In [b]} {c NotIn [d]}]", "a in (b, c),!d,e": "[{a In [b c]} {d DoesNotExist []} {e Exists []}]",
		"a notin (b)": "[{a NotIn [b]}]", "a in b": "error", "": "error", "a b": "error", "a in (b": "error", "=b": "error", "a=b c": "error",
	} {
		s, err := parseSelector(text)
		got := fmt.Sprint(s.terms)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestOldFilters compares the filters of the extension project's first releases with their rules.
func TestOldFilters(t *testing.T) {
	at := func(waiting int, kv float64, lora *endpoint.LoRA) one {
		g := &endpoint.Gauges{Values: gauge.Values{Waiting: waiting, KVUse: kv}}
		g.LoRA = lora
		return one{gauges: g}
	}
	fl := newFleet(
		at(0, .5, &endpoint.LoRA{Max: 2, Running: []string{"x", "y"}}),
		at(3, .1, &endpoint.LoRA{Max: 2, Running: []string{"x"}, Waiting: []string{"a"}}),
		at(9, .3, &endpoint.LoRA{Max: 2, Running: []string{"x"}}),
		at(10, .9, nil))
	f := func(typ, params, want string) {
		t.Helper()
		r := ask(10)
		r.Adapter = "a"
		if got := fl.kept(t, r, typ, params); got != want {
			t.Errorf("%s %s kept %q, want %q", typ, params, got, want)
		}
	}
	f("low-queue-filter", "", "0123")
	f("low-queue-filter", `{"threshold":3}`, "01")
	f("low-queue", `{"threshold":-1}`, "")
	f("least-queue-filter", "", "0")     // 0 to 0+⌊10/4⌋
	f("least-kv-cache-filter", "", "12") // 0.1 to 0.1+0.8/4
	f("lora-affinity-filter", `{"threshold":1}`, "1")
	f("lora-affinity-filter", `{"threshold":0}`, "2") // has room
	if got := newFleet(at(4, 0, nil), at(6, 0, nil), at(7, 0, nil)).kept(t, ask(1), "least-queue-filter", ""); got != "0" {
		t.Errorf("ranges are whole numbers: kept %s", got)
	}
}

func TestDecisionTree(t *testing.T) {
	at := func(waiting int, kv float64) one {
		return one{gauges: &endpoint.Gauges{Values: gauge.Values{Waiting: waiting, KVUse: kv}}}
	}
	fl := newFleet(at(8, .9), at(3, .8), at(4, .2), at(9, .1))
	f := func(params, want string) {
		t.Helper()
		p := build(t, "decision-tree-filter", params)
		filter := p.BindFilters(filtersByName(t))
		c := fl.cycle(ask(10))
		defer c.Free()
		if got := left(c, filter); got != want {
			t.Errorf("%s kept %q, want %q", params, got, want)
		}
	}
	f(`{"current":{"pluginRef":"low-queue-filter 4"}}`, "12")
	f(`{"current":{"pluginRef":"low-queue-filter 4"},"nextOnSuccess":{"pluginRef":"least-kv-cache-filter"}}`, "2")
	f(`{"current":{"pluginRef":"low-queue-filter 1"},"nextOnSuccess":{"pluginRef":"least-kv-cache-filter"}}`, "")
	f(`{"current":{"pluginRef":"low-queue-filter 1"},"nextOnFailure":{"pluginRef":"least-kv-cache-filter"}}`, "23")
	f(`{"current":{"pluginRef":"low-queue-filter 1"},"nextOnSuccessOrFailure":{"decisionTree":{"current":{"pluginRef":"low-queue-filter 8"},"nextOnSuccess":{"pluginRef":"least-kv-cache-filter"}}}}`, "2")
	for params, want := range map[string]string{
		`{}`: "current is required", `{"current":{}}`: "current must have either", `{"current":{"pluginRef":"a"},"nextOnSuccess":{"decisionTree":{}}}`: "nextOnSuccess.decisionTree.current is required",
	} {
		if _, err := try("decision-tree-filter", params); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", params, err, want)
		}
	}
}

// filtersByName builds filters from names such as "low-queue-filter 4", with a threshold.
func filtersByName(t *testing.T) plugin.FindFilter {
	return func(_, name string) cycle.Filter {
		typ, threshold, _ := strings.Cut(name, " ")
		params := ""
		if threshold != "" {
			params = `{"threshold":` + threshold + `}`
		}
		return build(t, typ, params).Filter
	}
}

// TestTopologyLabels: the plugins compare locations by the labels of the extractor.
func TestTopologyLabels(t *testing.T) {
	fl := newFleet(one{labels: map[string]string{"h": "1", "r": "1"}}, one{labels: map[string]string{"h": "2", "r": "1"}}, one{labels: map[string]string{"h": "3", "r": "2"}})
	labels := *build(t, "topology-extractor", `{"hostname":"h","rack":"r"}`).Topology
	c := fl.cycle(ask(10))
	defer c.Free()
	c.Peer = fl.pool.Snapshot().Endpoints[0]
	if got := left(c, build(t, "topology-affinity-filter", `{"minAffinity":"rack"}`).BindTopology(labels).Filter); got != "01" {
		t.Errorf("filter kept %s", got)
	}
	scores := make([]float64, 3)
	build(t, "topology-affinity-scorer", "").BindTopology(labels).Scorer.Score(c, scores)
	if !near(scores, []float64{1, .2, 0}) {
		t.Errorf("scores %v", scores)
	}
}

// TestClusterScorers: an endpoint without the gauge scores 0.
func TestClusterScorers(t *testing.T) {
	at := func(queue, kv float64) one {
		return one{gauges: &endpoint.Gauges{Values: gauge.Values{Custom: map[string]float64{"llm-d.ai/multicluster-queue-size": queue, "llm-d.ai/multicluster-kv-cache-utilization": kv}}}}
	}
	fl := newFleet(at(3, .5), at(1, .25), at(2, 1), one{})
	if got := fl.scores(t, ask(1), "multicluster-queue-scorer", ""); !near(got, []float64{0, 1, .5, 0}) {
		t.Errorf("queue: %v", got)
	}
	if got := fl.scores(t, ask(1), "multicluster-kv-cache-utilization-scorer", ""); !near(got, []float64{.5, .75, 0, 0}) {
		t.Errorf("KV use: %v", got)
	}
}

// TestStamps: answers have the labels of the endpoint, next to a session's token.
func TestStamps(t *testing.T) {
	fl := revisionFleet()
	c := fl.cycle(ask(10))
	defer c.Free()
	stamps := []plugin.Stamp{{Header: "x-rev", Label: endpoint.LabelRevision}, {Header: "x-none", Label: "none"}}
	for _, tt := range []struct{ token, want string }{{"", "[{x-rev B}]"}, {"x-token", "[{x-token bnMvZTEx} {x-rev B}]"}} {
		if got := fmt.Sprint(AnswerHeaders(tt.token, stamps)(c, 11)); got != tt.want {
			t.Errorf("token %q: %s, want %s", tt.token, got, tt.want)
		}
	}
	if AnswerHeaders("", nil) != nil {
		t.Error("without token and stamps there is nothing to do")
	}
}
