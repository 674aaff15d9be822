package docs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEnvironment checks that docs/flags.md lists each environment variable that the program
// reads by a literal name.
func TestEnvironment(t *testing.T) {
	table, found := section(read(t, root+"/docs/flags.md"), "Environment")
	if !found {
		t.Fatal("docs/flags.md has no section Environment")
	}
	call := regexp.MustCompile(`(?i:getenv|lookupenv)\("([A-Z][A-Z0-9_]+)"\)`)
	seen := 0
	for _, folder := range []string{"cmd/grapevine", "internal", "pd", "picker", "extproc", "cluster", "events", "indexer"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.Contains(path, "/internal/testkit/") || strings.Contains(path, "/internal/lab/") {
				return err
			}
			for _, m := range call.FindAllStringSubmatch(read(t, path), -1) {
				seen++
				if name := m[1]; !strings.Contains(table, "`"+name+"`") && !strings.HasPrefix(name, "OTEL_") {
					t.Errorf("%s reads %s, which docs/flags.md does not list", path, name)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 10 {
		t.Errorf("found %d variables, want 10 or more", seen)
	}
}
