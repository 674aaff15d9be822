package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/discovery"
)

// TestManualExamples: every YAML block of the pages on configuration loads.
func TestManualExamples(t *testing.T) {
	for _, name := range []string{"configuration.md", "migrate.md"} {
		list := fences(read(t, root+"/docs/"+name), "yaml")
		if len(list) == 0 {
			t.Errorf("%s has no example", name)
		}
		for _, text := range list {
			if strings.Contains(text, "kind: EndpointPickerConfig") {
				loads(t, name, text)
				continue
			}
			eps, problems := discovery.Parse(name, []byte(text))
			if len(problems) > 0 || len(eps) == 0 {
				t.Errorf("%s: endpoints file: %v\n%s", name, problems, text)
			}
		}
	}
}

// TestManualNames: metrics that the pages name exist, and so do the files that
// they point to.
func TestManualNames(t *testing.T) {
	known := metricNames(t)
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	paths, err := filepath.Glob(root + "/docs/plugins/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(paths, root+"/docs/configuration.md", root+"/docs/flags.md", root+"/docs/migrate.md", root+"/docs/explain.md", root+"/docs/clustering.md", root+"/docs/kubernetes.md", root+"/docs/proxies.md") {
		page := read(t, path)
		for _, name := range regexp.MustCompile(`grapevine_[a-z_]+`).FindAllString(page, -1) {
			if !known[name] {
				t.Errorf("%s: there is no metric %s", path, name)
			}
		}
		for _, m := range link.FindAllStringSubmatch(page, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s points to %s: %v", path, m[1], err)
			}
		}
	}
}
