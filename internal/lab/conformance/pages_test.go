package conformance

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the generated tables of the documentation anew")

// TestPages checks that the tables in the documentation are those of the stored reports and of the
// cases.
func TestPages(t *testing.T) {
	var reports []*Report
	for _, name := range []string{"grapevine.json", "lwepp.json", "gie-epp.json"} {
		r := load(t, name)
		reports = append(reports, r)
		if r.SuiteVersion != SuiteVersion || len(r.Results) != len(Cases()) {
			t.Errorf("%s is of suite %s with %d cases, this is %s with %d: make conformance-reports", name, r.SuiteVersion, len(r.Results), SuiteVersion, len(Cases()))
		}
	}
	for path, tables := range map[string]map[string]string{
		"../../../docs/conformance-reports.md": {"matrix": Matrix(reports), "runs": Runs(reports)},
		"../../../docs/conformance.md":         {"cases": Catalog()},
	} {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		page := string(raw)
		for name, table := range tables {
			begin, end := "<!-- "+name+": written by go test ./internal/lab/conformance -rewrite -->\n", "<!-- end of "+name+" -->"
			before, rest, found := strings.Cut(page, begin)
			_, after, closed := strings.Cut(rest, end)
			if !found || !closed {
				t.Fatalf("%s has no markers for %s", path, name)
			}
			page = before + begin + "\n" + table + "\n" + end + after
		}
		switch {
		case page == string(raw):
		case *rewrite:
			if err := os.WriteFile(path, []byte(page), 0o644); err != nil { //nolint:gosec // a page of the repository
				t.Fatal(err)
			}
		default:
			t.Errorf("the tables of %s are stale: go test ./internal/lab/conformance -rewrite", path)
		}
	}
}
