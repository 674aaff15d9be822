package commands

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// shippedFiles are patterns of files and folders that users start or apply.
var shippedFiles = []string{
	"deploy/helm/*", "deploy/kustomize/*", "deploy/crds/*.yaml", "deploy/Dockerfile", "deploy/envoy/*.yaml", "deploy/proxies/*",
	"deploy/examples/*.yaml", "deploy/examples/models/*.yaml", "deploy/examples/tracing/*.yaml", "deploy/examples/llm-d/*.yaml", "deploy/release/*.py", "docs/examples/*",
}

// TestShippedArtefactsHaveTests checks the list of everything that users start: it names each
// subcommand and each shipped file once, and for each a test that exists. Entries that a test does
// not start as they are shipped are printed.
func TestShippedArtefactsHaveTests(t *testing.T) {
	text, err := os.ReadFile("testdata/shipped.list")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, " | ")
		if len(f) != 4 {
			t.Errorf("line %q has %d fields, want 4", line, len(f))
			continue
		}
		artefact, pkg, test, how := f[0], f[1], f[2], f[3]
		if listed[artefact] {
			t.Errorf("%s is listed twice", artefact)
		}
		listed[artefact] = true
		if !hasTest(t, pkg, test) {
			t.Errorf("%s: package %s has no test %s", artefact, pkg, test)
		}
		if reason, gap := strings.CutPrefix(how, "partly: "); gap {
			t.Logf("not started as shipped: %s: %s", artefact, reason)
		} else if how != "as is" {
			t.Errorf("%s: %q is neither \"as is\" nor \"partly: REASON\"", artefact, how)
		}
	}
	var want []string
	for _, c := range newRoot(standard).Commands() {
		if c.Name() != "help" && c.Name() != "completion" {
			want = append(want, "command grapevine "+c.Name())
		}
	}
	for _, pattern := range shippedFiles {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil || len(found) == 0 {
			t.Errorf("pattern %s matches nothing (%v)", pattern, err)
		}
		for _, path := range found {
			want = append(want, "file "+strings.TrimPrefix(filepath.ToSlash(path), "../../"))
		}
	}
	for _, artefact := range want {
		if !listed[artefact] {
			t.Errorf("testdata/shipped.list does not list %q, with a test that starts it", artefact)
		}
		delete(listed, artefact)
	}
	for artefact := range listed {
		t.Errorf("testdata/shipped.list lists %q, which does not exist", artefact)
	}
}

// hasTest reports whether a test file of the package declares the test.
func hasTest(t *testing.T, pkg, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(test) + `\(`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if declared.Match(text) {
			return true
		}
	}
	return false
}
