//go:build page

package page

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/problems"
)

// calmTime is how long Prometheus scrapes the calm replica before the incident.
const calmTime = 10 * time.Minute

var (
	rules   = strings.ReplaceAll(problems.Rules(), "{{ .Release.Namespace | quote }}", `"prod"`)
	alerted = regexp.MustCompile(`grapevine_[a-z_]+`)
)

// scrape returns the series of a replica's metrics page that alerts read, with the labels that
// Prometheus adds in a cluster.
func (s *stand) scrape(t *testing.T) map[string]string {
	t.Helper()
	resp, err := http.Get("http://" + s.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]bool{}
	for _, name := range alerted.FindAllString(rules, -1) {
		read[name] = true
	}
	series := map[string]string{}
	for line := range strings.Lines(string(page)) {
		name := alerted.FindString(line)
		if !strings.HasPrefix(line, name) || !read[name] {
			continue
		}
		of, value := line[:strings.LastIndexByte(line, ' ')], strings.TrimSpace(line[strings.LastIndexByte(line, ' '):])
		_, labels, _ := strings.Cut(strings.TrimSuffix(of, "}"), "{")
		if labels != "" {
			labels = "," + labels
		}
		series[fmt.Sprintf(`%s{namespace="prod",pod="llama-epp-1"%s}`, name, labels)] = value
	}
	return series
}

// fires evaluates the alerts of the chart with promtool, on what was scraped before the incident and
// during it. No alert fires before, and that of p fires once its time has passed.
func fires(t *testing.T, p problems.Problem, before, during map[string]string) {
	t.Helper()
	hold := time.Duration(0)
	if p.Alert.For != "" {
		var err error
		if hold, err = time.ParseDuration(p.Alert.For); err != nil {
			t.Fatal(err)
		}
	}
	minutes := func(d time.Duration) int { return int(d / time.Minute) }
	var input []map[string]string
	for of, value := range during {
		old, ok := before[of]
		if !ok {
			old = "_"
		}
		input = append(input, map[string]string{"series": of, "values": fmt.Sprintf("%sx%d %sx%d", old, minutes(calmTime)-1, value, minutes(hold)+10)})
	}
	var cases []map[string]any
	for i := range problems.Table {
		if q := &problems.Table[i]; q.Alert != nil {
			cases = append(cases, map[string]any{"eval_time": (calmTime - time.Minute).String(), "alertname": q.Alert.Name, "exp_alerts": []any{}})
		}
	}
	cases = append(cases, map[string]any{"eval_time": (calmTime + hold + time.Minute).String(), "alertname": p.Alert.Name, "exp_alerts": []any{map[string]any{
		"exp_labels": map[string]string{"severity": string(p.Severity), "code": string(p.Code)}, "exp_annotations": p.Annotations(),
	}}})
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yaml"), rules)
	text, err := yaml.Marshal(map[string]any{"rule_files": []string{"rules.yaml"}, "evaluation_interval": "1m", "tests": []any{map[string]any{"interval": "1m", "input_series": input, "alert_rule_test": cases}}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "tests.yaml"), string(text))
	promtool := filepath.Join(parts.Cache(), "promtool", "promtool")
	if _, err := os.Stat(promtool); err != nil {
		t.Fatalf("%v: make test-page installs it", err)
	}
	if out, err := exec.Command(promtool, "test", "rules", filepath.Join(dir, "tests.yaml")).CombinedOutput(); err != nil {
		t.Errorf("alerts on the scraped metrics: %v\n%s", err, out)
	}
}
