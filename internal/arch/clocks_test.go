package arch

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// wallClocks are the places that need the wall clock, with the reason.
var wallClocks = map[string]string{
	"internal/commands/explain_offline.go": "shows a decision of another time",
	"cluster/options.go":                   "members compare their wall clocks",
	"cluster/types.go":                     "a number that no other process has",
	"internal/server/configuration.go":     "a metric tells the time of day",
	"internal/share/driver.go":             "said to other replicas",
	"internal/prompt/model.go":             "templates print the date",
	"internal/prompt/models.go":            "templates print the date",
	"internal/prompt/remote/prober.go":     "compares times, which have a reading of the other clock",
	"internal/prompt/remote/renderer.go":   "compares times, which have a reading of the other clock",
	"internal/server/share.go":             "says to other replicas how old a seed is",
	"pd/sidecar/options.go":                "compares times, which have a reading of the other clock",
}

// TestClocks: clocks passed to other packages are monotonic, unless they need the time of day. A
// wall-clock time stored as a number would be an hour off when the machine's clock is set.
func TestClocks(t *testing.T) {
	clock := regexp.MustCompile(`(?m)(\.Now = |\bNow: +)time\.Now\b|\btime\.Now\(\)\.Unix`)
	seen := map[string]bool{}
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "lab" || d.Name() == ".git"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		b, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		if clock.Match(b) {
			seen[path] = true
			if wallClocks[path] == "" {
				t.Errorf("%s hands out time.Now as a clock: take steady.Now, or say here why the time of day is meant", path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path := range wallClocks {
		if !seen[path] {
			t.Errorf("%s hands out no clock", path)
		}
	}
}
