//go:build kube

package deploy_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
	"github.com/grapevine-epp/grapevine/internal/testkit/promkit"
)

// present keeps the alert on missing metrics silent.
const present = `grapevine_picker_endpoints{namespace="prod"}`

// example is a set of series, and whether the alert fires on them.
type example struct {
	step   time.Duration // between samples; 0: a minute
	series map[string]string
	at     time.Duration
	labels map[string]string // of the alert, in addition to severity and code; nil: it does not fire
}

// examples are those of alerts that do not use grapevine_problems. Each alert has one on which it
// fires and one on which it does not.
var examples = map[string][]example{
	"GrapevineLogLinesLost": {
		{series: map[string]string{`grapevine_log_lines_dropped_total{namespace="prod"}`: "0+10x60"}, at: 15 * time.Minute, labels: map[string]string{"namespace": "prod"}},
		{series: map[string]string{`grapevine_log_lines_dropped_total{namespace="prod"}`: "7x60"}, at: 55 * time.Minute},
	},
	"GrapevineAbsent": {
		{series: map[string]string{`grapevine_picker_endpoints{namespace="other"}`: "1x60"}, at: 15 * time.Minute, labels: map[string]string{"namespace": "prod"}},
		{series: map[string]string{present: "1x60"}, at: 55 * time.Minute},
	},
	"GrapevineUserErrors": {
		{series: failures("0+20x120"), at: 70 * time.Minute, labels: ofModel},                            // 2%
		{series: failures("0+7x360"), at: 2 * time.Hour, labels: ofModel},                                // 0.7%
		{series: failures("0+3x360"), at: 2 * time.Hour},                                                 // 0.3%
		{series: failures("0x360 0+100x4 400x120"), at: 6*time.Hour + 6*time.Minute},                     // 10% for four minutes
		{series: failures("0x360 0+100x15 1500x120"), at: 6*time.Hour + 18*time.Minute, labels: ofModel}, // for a quarter of an hour
		{series: failures("0x360 0+100x15 1500x120"), at: 7*time.Hour + 15*time.Minute},                  // an hour later
	},
	"GrapevineErrorBudget": {
		{step: quarter, series: failures("0+4x1500"), at: 25 * time.Hour, labels: ofModel}, // 0.4% for a day
		{step: quarter, series: failures("0+2x1500"), at: 71 * time.Hour, labels: ofModel}, // 0.2% for three days
		{step: quarter, series: failures("0+1x1500", 2000), at: 71 * time.Hour},            // 0.05%
		{step: quarter, series: failures("0+4x96 384x100"), at: 34 * time.Hour},            // ended ten hours ago
	},
	"GrapevineFirstTokensLate": {
		{series: firstTokens(20, 80), at: 70 * time.Minute, labels: ofModel},
		{series: firstTokens(60, 40), at: 2 * time.Hour, labels: ofModel},
		{series: firstTokens(80, 20), at: 2 * time.Hour},
	},
	"GrapevineFirstTokenBudget": {
		{step: quarter, series: firstTokens(80, 20), at: 25 * time.Hour, labels: ofModel},
		{step: quarter, series: firstTokens(97, 3), at: 25 * time.Hour},
	},
}

// quarter is the step of cases that take days.
const quarter = 15 * time.Minute

var ofModel = map[string]string{"model": "m"}

// failures returns the series of a model with failed requests, and 1000 requests a step or another
// number.
func failures(errors string, perMinute ...int) map[string]string {
	n := append(perMinute, 1000)[0]
	return map[string]string{
		`grapevine_user_errors_total{namespace="prod",model="m",cause="engine"}`: errors,
		`grapevine_user_requests_total{namespace="prod",model="m"}`:              fmt.Sprintf("0+%dx4320", n),
	}
}

// firstTokens returns the series of a model whose first tokens come within a second or within five,
// with the number of each per step.
func firstTokens(early, late int) map[string]string {
	bucket := func(le string, n int) (series, values string) {
		return fmt.Sprintf(`grapevine_user_first_token_seconds_bucket{namespace="prod",model="m",le=%q}`, le), fmt.Sprintf("0+%dx1800", n)
	}
	series := map[string]string{}
	for le, n := range map[string]int{"1": early, "1.9953": early, "5.0119": early + late, "+Inf": early + late} {
		name, values := bucket(le, n)
		series[name] = values
	}
	return series
}

// testAlerts evaluates the alerts of the installed chart with promtool: each one fires while its
// problem exists, with the severity, the code and the texts of the table, and none fires otherwise.
func testAlerts(t *testing.T, c *kubekit.Cluster) {
	render := func(args ...string) string {
		return ruleFile(t, helm(t, c, append([]string{"template", "llama", chart, "-n", "prod", "--set", "monitoring.alerts.enabled=true"}, args...)...))
	}
	var cases []promkit.Case
	for i := range problems.Table {
		p := &problems.Table[i]
		if p.Alert == nil {
			continue
		}
		list := examples[p.Alert.Name]
		if list == nil {
			if p.Alert.Expr != "" {
				t.Errorf("alert %s has no series in this test", p.Alert.Name)
				continue
			}
			of := fmt.Sprintf("grapevine_problems{namespace=%q,code=%q,pod=%q}", "prod", p.Code, "llama-epp-1")
			list = []example{
				{series: map[string]string{of: "2x60"}, at: promkit.Hold(t, p) + 10*time.Minute, labels: map[string]string{}},
				{series: map[string]string{of: "0x60"}, at: 55 * time.Minute},
			}
		}
		fires, silent := 0, 0
		for _, e := range list {
			series := maps.Clone(e.series)
			if p.Code != problems.NotScraped {
				series[present] = "1x4320"
			}
			cases = append(cases, promkit.Case{Step: e.step, Series: series, Checks: []promkit.Check{{Problem: p, At: e.at, Labels: e.labels}}})
			if e.labels == nil {
				silent++
			} else {
				fires++
			}
		}
		if fires == 0 || silent == 0 {
			t.Errorf("alert %s: %d examples on which it fires, %d on which it does not", p.Alert.Name, fires, silent)
		}
	}
	if len(cases) < 60 {
		t.Fatalf("%d cases, want one pair for each of more than 30 alerts", len(cases))
	}
	promkit.Evaluate(t, render(), cases...)

	// Other objectives: 4% of requests may fail, and 1% of first tokens may be later than 10 s.
	other := render("--set", "monitoring.objectives.errors=4,monitoring.objectives.firstTokenSeconds=10,monitoring.objectives.lateFirstTokens=1")
	cases = nil
	for name, e := range map[string]example{
		"GrapevineUserErrors":       {series: failures("0+20x120"), at: 70 * time.Minute},
		"GrapevineFirstTokensLate":  {series: firstTokens(20, 80), at: 70 * time.Minute},
		"GrapevineErrorBudget":      {step: quarter, series: failures("0+20x1500"), at: 25 * time.Hour},
		"GrapevineFirstTokenBudget": {step: quarter, series: firstTokens(80, 20), at: 25 * time.Hour},
	} {
		p, ok := problems.OfAlert(name)
		if !ok {
			t.Fatalf("no alert %s", name)
		}
		cases = append(cases, promkit.Case{Step: e.step, Series: e.series, Checks: []promkit.Check{{Problem: &p, At: e.at}}})
	}
	promkit.Evaluate(t, other, cases...)
}

// ruleFile returns the rules of a rendered PrometheusRule as a file, as the Prometheus Operator writes
// it.
func ruleFile(t *testing.T, rendered string) string {
	t.Helper()
	for doc := range strings.SplitSeq(rendered, "\n---") {
		var m map[string]any
		if err := yaml.Unmarshal([]byte(doc), &m); err != nil || m["kind"] != "PrometheusRule" {
			continue
		}
		text, err := yaml.Marshal(m["spec"])
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	t.Fatal("the chart renders no PrometheusRule")
	return ""
}
