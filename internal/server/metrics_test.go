package server

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster/natsbus/embedded"
	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/picker/sizing"
)

var rewriteMetrics = flag.Bool("rewrite", false, "write the tables of docs/metrics.md anew")

const (
	metricsPage = "../../docs/metrics.md"
	metricsFrom = "<!-- families: written by go test ./internal/server -run TestMetricsPage -rewrite -->\n"
	metricsTo   = "<!-- end of families -->\n"
)

// family is one metric as the page has it.
type family struct {
	name, kind, help string
	labels           []string
}

// TestMetricsPage compares the metrics reference with the metrics that a replica in a group
// registers. Every family needs a description.
func TestMetricsPage(t *testing.T) {
	list := families(t)
	var b strings.Builder
	group := ""
	for _, f := range list {
		if len(f.help) < 10 || !strings.HasSuffix(f.help, ".") {
			t.Errorf("%s is not explained: %q", f.name, f.help)
		}
		if g := strings.SplitN(f.name, "_", 3)[1]; g != group {
			group = g
			fmt.Fprintf(&b, "\n## %s\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n", g)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.name, f.kind, strings.Join(f.labels, ", "), strings.ReplaceAll(f.help, "|", "\\|"))
	}
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), metricsFrom)
	_, after, closed := strings.Cut(rest, metricsTo)
	if !found || !closed {
		t.Fatalf("%s has no marks around its tables", metricsPage)
	}
	want := before + metricsFrom + b.String() + "\n" + metricsTo + after
	if *rewriteMetrics {
		if err := os.WriteFile(metricsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(page) != want {
		t.Errorf("%s does not have the metrics of a replica: go test ./internal/server -run TestMetricsPage -rewrite", metricsPage)
	}
	for _, name := range regexp.MustCompile(`grapevine_[a-z_]+`).FindAllString(before+after, -1) {
		if !slices.ContainsFunc(list, func(f family) bool {
			return f.name == name || f.kind == "histogram" && f.name+"_bucket" == name
		}) {
			t.Errorf("%s: there is no metric %s", metricsPage, name)
		}
	}
}

// families lists by name the metric families of a replica in a group and a federation.
func families(t *testing.T) (list []family) {
	t.Setenv("OTEL_TRACES_EXPORTER", "otlp") // no span is exported
	_, o := options(t, fleet.Options{Engines: 1})
	o.Cluster = ClusterOptions{Mode: "gossip", Label: "test", Bind: "127.0.0.1:0", StreamBind: "127.0.0.1:0", Keys: [][]byte{make([]byte, 32)}, Share: "mesh"}
	o.SizeTarget = sizing.Target{Part: .9, Seconds: 2}
	o.ProbeRendering, o.LogWriter = true, cli.NewLogWriter(io.Discard)
	nats, err := embedded.Start(embedded.Options{Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nats.Stop)
	federated(t, &o, nats.URL(), "a", "b")
	s := open(t, o)
	gathered, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, f := range gathered {
		kinds[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	descs := make(chan *prometheus.Desc, 1024)
	s.registry.Describe(descs)
	close(descs)
	constant := regexp.MustCompile(`(\w+)="`)
	form := regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: ("(?:[^"\\]|\\.)*"), (?:unit: "[^"]*", )?constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}\}$`)
	for d := range descs {
		m := form.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("a metric describes itself in another form: %s", d)
		}
		help, err := strconv.Unquote(m[2])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(m[1], "grapevine_") {
			continue // metrics of the process and its runtime
		}
		f := family{name: m[1], kind: kinds[m[1]], help: help}
		for _, label := range constant.FindAllStringSubmatch(m[3], -1) {
			f.labels = append(f.labels, label[1])
		}
		if m[4] != "" {
			f.labels = append(f.labels, strings.Split(m[4], ",")...)
		}
		if f.kind == "" {
			f.kind = kindOf(f.name)
		}
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b family) int { return strings.Compare(a.name, b.name) })
	return slices.CompactFunc(list, func(a, b family) bool { return a.name == b.name }) // values of constant labels
}

// kindOf returns the kind of a family without series, by its name.
func kindOf(name string) string {
	switch {
	case strings.HasSuffix(name, "_total"):
		return "counter"
	case slices.Contains([]string{"grapevine_request_seconds", "grapevine_flow_wait_seconds", "grapevine_plugin_seconds"}, name), strings.HasSuffix(name, "_first_token_seconds"):
		return "histogram"
	}
	return "gauge"
}
