package deploy_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestAnalysisQueries: the analysis of examples/argo-rollouts.yaml queries metrics that exist.
func TestAnalysisQueries(t *testing.T) {
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	page := read("../docs/metrics.md")
	names := regexp.MustCompile(`grapevine_[a-z_]+`).FindAllString(read("examples/argo-rollouts.yaml"), -1)
	if len(names) != 3 {
		t.Errorf("queries name %q, want 3 metrics", names)
	}
	for _, name := range names {
		if !strings.Contains(page, "| `"+strings.TrimSuffix(name, "_bucket")+"` |") {
			t.Errorf("%s is not in docs/metrics.md", name)
		}
	}
}
