package docs

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile("(?m)^#{1,6} +(.+)$")
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
)

// TestLinks checks that every relative link of a page leads to a file that exists, and to an
// existing heading if the link names one.
func TestLinks(t *testing.T) {
	out, err := exec.Command("git", "-C", "../..", "ls-files", "--cached", "--others", "--exclude-standard", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range strings.Fields(string(out)) {
		if strings.Contains(page, "testdata/") || page == "CHANGELOG.md" {
			continue
		}
		text := fence.ReplaceAllString(read(t, "../../"+page), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			target := page
			if file != "" {
				target = path.Join(path.Dir(page), file)
			}
			info, err := os.Stat(filepath.Join("../..", target))
			switch {
			case err != nil:
				t.Errorf("%s links to %s, which does not exist", page, m[1])
			case anchor != "" && !info.IsDir() && strings.HasSuffix(target, ".md") && !anchors(read(t, "../../"+target))[anchor]:
				t.Errorf("%s links to %s, but %s has no such heading", page, m[1], target)
			}
		}
	}
}

// anchors returns the anchors of a page's headings.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		plain := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1")
		slug := strings.ToLower(strings.NewReplacer("`", "", "*", "").Replace(plain))
		slug = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(slug, "")
		all[strings.ReplaceAll(strings.TrimSpace(slug), " ", "-")] = true
	}
	return all
}
