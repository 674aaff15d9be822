package docs

import (
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/guide"
)

// runners are the tests that run the blocks of pages. "" is the environment that a page names.
var runners = map[string]string{"": "internal/e2e/guides/guides_test.go", "kubernetes": "deploy/guide_test.go"}

// apart are pages of which another test runs all blocks.
var apart = map[string]string{
	"docs/get-started/kubernetes.md": "deploy/guide_test.go",
	"docs/tasks/langchain.md":        "internal/e2e/proxies/clients_test.go",
	"docs/tasks/litellm.md":          "internal/e2e/proxies/clients_test.go",
	"docs/tasks/join-clusters.md":    "internal/e2e/guides/guides_test.go",
}

// TestCommandBlocks checks that a test runs each shell block of the README, the tutorials and the
// tasks, or that the page has the reason why not. It prints how many are run.
func TestCommandBlocks(t *testing.T) {
	pages := []string{"README.md"}
	for _, pattern := range []string{"docs/get-started/*.md", "docs/tasks/*.md"} {
		found, err := filepath.Glob(root + "/" + pattern)
		if err != nil || len(found) < 4 {
			t.Fatalf("%s: pages %q, %v", pattern, found, err)
		}
		for _, f := range found {
			pages = append(pages, path.Dir(pattern)+"/"+filepath.Base(f))
		}
	}
	ran, skipped := 0, 0
	for _, page := range pages {
		blocks, err := guide.Parse(read(t, root+"/"+page))
		if err != nil {
			t.Fatalf("%s: %v", page, err)
		}
		for _, b := range blocks {
			if b.Skip != "" {
				skipped++
				continue
			}
			ran++
			test, known := runners[b.On]
			if other, is := apart[page]; is {
				test = other
			}
			if !known || !strings.Contains(read(t, root+"/"+test), page+`"`) {
				t.Errorf("%s:%d: no test runs this block, and the page has no reason why not", page, b.Line)
			}
		}
	}
	t.Logf("%d blocks of %d pages are run, %d are not", ran, len(pages), skipped)
}
