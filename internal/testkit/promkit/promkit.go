package promkit

import (
	"cmp"
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
)

// Case is a set of series and what alerts make of them.
type Case struct {
	Step   time.Duration     // between samples and evaluations; 0: a minute
	Series map[string]string // values in the notation of promtool
	Checks []Check
}

// Check states whether the alert of a problem fires at a time.
type Check struct {
	Problem *problems.Problem
	At      time.Duration
	// Labels are those of the alert, in addition to severity and code. Nil: it does not fire.
	Labels map[string]string
}

// Hold returns how long a problem has to last before its alert fires.
func Hold(t testing.TB, p *problems.Problem) time.Duration {
	t.Helper()
	if p.Alert.For == "" {
		return 0
	}
	hold, err := time.ParseDuration(p.Alert.For)
	if err != nil {
		t.Fatal(err)
	}
	return hold
}

// Evaluate checks a file of Prometheus rules, and the alerts that it raises in each case. Annotations
// must be those of the table.
func Evaluate(t testing.TB, rules string, cases ...Case) {
	t.Helper()
	promtool := filepath.Join(parts.Cache(), "promtool", "promtool")
	if _, err := os.Stat(promtool); err != nil {
		t.Fatalf("%v: internal/setup/setup.sh promtool installs it", err)
	}
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	run("check", "rules", write("rules.yaml", []byte(rules)))
	tests := map[time.Duration][]map[string]any{} // by step, which is one for a file
	for _, c := range cases {
		c.Step = cmp.Or(c.Step, time.Minute)
		tests[c.Step] = append(tests[c.Step], c.test())
	}
	for step, list := range tests {
		text, err := yaml.Marshal(map[string]any{"rule_files": []string{"rules.yaml"}, "evaluation_interval": step.String(), "tests": list})
		if err != nil {
			t.Fatal(err)
		}
		run("test", "rules", write("tests.yaml", text))
	}
}

// test returns the case as a test of promtool.
func (c *Case) test() map[string]any {
	var series []map[string]string
	for of, values := range c.Series {
		series = append(series, map[string]string{"series": of, "values": values})
	}
	var checks []map[string]any
	for _, k := range c.Checks {
		expected := []map[string]any{}
		if k.Labels != nil {
			labels := map[string]string{"severity": string(k.Problem.Severity), "code": string(k.Problem.Code)}
			maps.Copy(labels, k.Labels)
			expected = append(expected, map[string]any{"exp_labels": labels, "exp_annotations": k.Problem.Annotations()})
		}
		checks = append(checks, map[string]any{"eval_time": k.At.String(), "alertname": k.Problem.Alert.Name, "exp_alerts": expected})
	}
	return map[string]any{"interval": c.Step.String(), "input_series": series, "alert_rule_test": checks}
}
