package dashboards

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/problems"
)

var rewrite = flag.Bool("rewrite", false, "write the dashboards of the chart anew")

const (
	folder = "../../deploy/helm/grapevine/files/dashboards"
	page   = "../../docs/metrics.md"
)

// TestGenerated: the files of the chart are those of the table, and no others.
func TestGenerated(t *testing.T) {
	var names []string
	for i := range Table {
		d := &Table[i]
		want, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(folder, d.File+".json")
		names = append(names, file)
		if *rewrite {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not that of the table: go test ./internal/dashboards -rewrite (%v)", file, err)
		}
	}
	files, err := filepath.Glob(folder + "/*")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	if !slices.Equal(files, names) {
		t.Errorf("files %q, want %q", files, names)
	}
}

// every calls f for each query.
func every(f func(d *Dashboard, p *Panel, expr string)) {
	for i := range Table {
		for _, r := range Table[i].Rows {
			for j := range r.Panels {
				for _, q := range r.Panels[j].Query {
					f(&Table[i], &r.Panels[j], q.expr())
				}
			}
		}
	}
}

var (
	row      = regexp.MustCompile("(?m)^\\| `(grapevine_[a-z_]+)` \\| (\\w+) \\| ([a-z_, ]*) \\|")
	selector = regexp.MustCompile(`(grapevine_[a-z_]+)(\{[^}]*\})?`)
	matcher  = regexp.MustCompile(`(\w+)=~?"([^"]*)"`)
	grouped  = regexp.MustCompile(`by \(([a-z_, ]*)\)`)
	suffix   = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// TestQueries: each query selects metrics of the reference in one namespace, by labels that they have.
// Quantiles are of histograms, and rates of counters or histograms.
func TestQueries(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	kinds, labels := map[string]string{}, map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		kinds[m[1]], labels[m[1]] = m[2], append(strings.Split(m[3], ", "), "namespace", "pod")
	}
	n := 0
	every(func(d *Dashboard, p *Panel, expr string) {
		n++
		at := d.File + ": " + p.Title
		for rest, m := expr, selector.FindStringSubmatch(expr); m != nil; m = selector.FindStringSubmatch(rest) {
			before, after, _ := strings.Cut(rest, m[0])
			rest = after
			name := m[1]
			if kinds[name] == "" {
				name = suffix.ReplaceAllString(name, "")
			}
			histogram := name != m[1]
			switch rated := strings.Contains(expr, "rate("+m[0]); {
			case kinds[name] == "":
				t.Errorf("%s: %s does not exist", at, m[1])
			case histogram != (kinds[name] == "histogram"):
				t.Errorf("%s: %s of a %s", at, m[1], kinds[name])
			case rated != (kinds[name] != "gauge"):
				t.Errorf("%s: %s is a %s, rate: %t", at, name, kinds[name], rated)
			}
			if !strings.Contains(m[2], `namespace="$namespace"`) {
				t.Errorf("%s: %s is not limited to the namespace", at, name)
			}
			var used []string
			for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
				used = append(used, l[1])
				if v, is := strings.CutPrefix(l[2], "$"); is && v != "namespace" && !slices.ContainsFunc(d.Variables, func(x Variable) bool { return x.Name == v }) {
					t.Errorf("%s: the dashboard has no variable %s", at, v)
				}
			}
			for _, g := range grouped.FindAllStringSubmatch(before, -1) {
				for _, l := range strings.Split(g[1], ", ") {
					if l != "le" || !histogram {
						used = append(used, l)
					}
				}
			}
			for _, l := range used {
				if !slices.Contains(labels[name], l) {
					t.Errorf("%s: %s has no label %s", at, name, l)
				}
			}
		}
	})
	if n < 80 {
		t.Errorf("%d queries were found", n)
	}
	for i := range Table {
		for _, v := range Table[i].Variables {
			if !slices.Contains(labels[v.From], v.Name) {
				t.Errorf("%s: %s has no label %s", Table[i].File, v.From, v.Name)
			}
		}
	}
}

// TestProblemsHaveAPanel: dashboards show problems by code, and each metric that an alert or the
// verification of a problem reads.
func TestProblemsHaveAPanel(t *testing.T) {
	var all strings.Builder
	every(func(_ *Dashboard, _ *Panel, expr string) { all.WriteString(expr + "\n") })
	if !strings.Contains(all.String(), "by (code) (grapevine_problems") {
		t.Error("no dashboard shows problems by code")
	}
	name := regexp.MustCompile(`grapevine_[a-z_]+[a-z]`)
	for _, p := range problems.Table {
		metrics := name.FindAllString(p.Verify, -1)
		if p.Alert != nil {
			metrics = append(metrics, name.FindAllString(p.Alert.Expr, -1)...)
		}
		for _, m := range metrics {
			if !strings.Contains(all.String(), m) {
				t.Errorf("%s refers to %s, and no panel has it", p.Code, m)
			}
		}
	}
}
