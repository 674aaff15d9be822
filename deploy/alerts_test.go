//go:build kube

package deploy_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

// present keeps the alert on missing metrics silent.
const present = `grapevine_picker_endpoints{namespace="prod"}`

// fault is a problem as Prometheus sees it.
type fault struct {
	series map[string]string // while the problem exists
	calm   map[string]string // while it does not
	labels map[string]string // of the alert, in addition to severity and code
}

// faults are those of alerts that do not use grapevine_problems.
var faults = map[string]fault{
	"GrapevineLogLinesLost": {
		series: map[string]string{`grapevine_log_lines_dropped_total{namespace="prod"}`: "0+10x60", present: "1x60"},
		calm:   map[string]string{`grapevine_log_lines_dropped_total{namespace="prod"}`: "7x60", present: "1x60"},
		labels: map[string]string{"namespace": "prod"},
	},
	"GrapevineAbsent": {
		series: map[string]string{`grapevine_picker_endpoints{namespace="other"}`: "1x60"},
		calm:   map[string]string{present: "1x60"},
		labels: map[string]string{"namespace": "prod"},
	},
	"GrapevineUserErrors": {
		series: map[string]string{`grapevine_user_errors_total{namespace="prod",model="m"}`: "0+2x60", `grapevine_user_requests_total{namespace="prod",model="m"}`: "0+100x60", present: "1x60"},
		calm:   map[string]string{`grapevine_user_errors_total{namespace="prod",model="m"}`: "0+1x60", `grapevine_user_requests_total{namespace="prod",model="m"}`: "0+200x60", present: "1x60"},
		labels: map[string]string{"model": "m"},
	},
}

// testAlerts evaluates the alerts of the installed chart with promtool: each one fires while its
// problem exists, with the severity, the code and the texts of the table, and none fires otherwise.
func testAlerts(t *testing.T, c *kubekit.Cluster) {
	evaluateAlerts(t, ruleFile(t, helm(t, c, "template", "llama", chart, "-n", "prod", "--set", "monitoring.alerts.enabled=true")))
}

func evaluateAlerts(t *testing.T, rules string) {
	t.Helper()
	promtool := filepath.Join(parts.Cache(), "promtool", "promtool")
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Fatalf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	run("check", "rules", rules)

	var cases []map[string]any
	for i := range problems.Table {
		p := &problems.Table[i]
		if p.Alert == nil {
			continue
		}
		f, ok := faults[p.Alert.Name]
		if !ok {
			if p.Alert.Expr != "" {
				t.Errorf("alert %s has no series in this test", p.Alert.Name)
				continue
			}
			of := fmt.Sprintf("grapevine_problems{namespace=%q,code=%q,pod=%q}", "prod", p.Code, "llama-epp-1")
			f = fault{labels: map[string]string{}, series: map[string]string{of: "2x60", present: "1x60"}, calm: map[string]string{of: "0x60", present: "1x60"}}
		}
		hold := time.Duration(0)
		if p.Alert.For != "" {
			var err error
			if hold, err = time.ParseDuration(p.Alert.For); err != nil {
				t.Fatal(err)
			}
		}
		cases = append(cases, alertCase(p, f.series, hold+10*time.Minute, f.labels), alertCase(p, f.calm, 55*time.Minute, nil))
	}
	if len(cases) < 60 {
		t.Fatalf("%d cases, want one pair for each of more than 30 alerts", len(cases))
	}
	text, err := yaml.Marshal(map[string]any{"rule_files": []string{rules}, "evaluation_interval": "1m", "tests": cases})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tests.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	run("test", "rules", file)
}

// alertCase is one case of promtool. With nil labels the alert must not fire at the given time.
func alertCase(p *problems.Problem, series map[string]string, at time.Duration, labels map[string]string) map[string]any {
	var input []map[string]string
	for of, values := range series {
		input = append(input, map[string]string{"series": of, "values": values})
	}
	expected := []map[string]any{}
	if labels != nil {
		all := map[string]string{"severity": string(p.Severity), "code": string(p.Code)}
		maps.Copy(all, labels)
		expected = append(expected, map[string]any{"exp_labels": all, "exp_annotations": p.Annotations()})
	}
	return map[string]any{
		"interval": "1m", "input_series": input,
		"alert_rule_test": []map[string]any{{"eval_time": at.String(), "alertname": p.Alert.Name, "exp_alerts": expected}},
	}
}

// ruleFile writes the rules of a rendered PrometheusRule into a file, as the Prometheus Operator does.
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
		file := filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	t.Fatal("the chart renders no PrometheusRule")
	return ""
}
