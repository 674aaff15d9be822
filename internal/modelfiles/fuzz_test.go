package modelfiles

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// FuzzListing decodes any listing: each accepted file stays in its folder and is none of weights.
func FuzzListing(f *testing.F) {
	for _, s := range []string{
		`{"sha":"0123456789abcdef0123456789abcdef01234567","siblings":[{"rfilename":"tokenizer.json"},{"rfilename":"qwen.tiktoken"},{"rfilename":"a/../b"}]}`,
		`{"sha":"x"}`, `[]`, `{"sha":"0123456789abcdef0123456789abcdef01234567","siblings":[{"rfilename":"additional_chat_templates/a.jinja"},{}]}`,
	} {
		f.Add([]byte(s))
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, data []byte) {
		l, err := decodeListing(data)
		if err != nil {
			return
		}
		if !isCommit(l.Commit) || len(l.Files) > maxFiles {
			t.Errorf("decodeListing() = %q with %d files, want a commit and at most %d", l.Commit, len(l.Files), maxFiles)
		}
		for _, name := range l.Files {
			if !filepath.IsLocal(name) || strings.HasSuffix(name, ".safetensors") || filepath.Clean(name) != name {
				t.Errorf("accepted file %q", name)
			}
		}
	})
}

// FuzzNames checks that accepted names are one folder below the cache.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"org/m", "../../etc", "https://a/b", "refs/pr/1", "a--b/c", "/etc"} {
		f.Add(s)
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, name string) {
		if ValidRepo(name) && filepath.Dir(repoFolder("/cache", name)) != "/cache" {
			t.Errorf("ValidRepo(%q) leads to %s", name, repoFolder("/cache", name))
		}
		if ValidRevision(name) && !filepath.IsLocal(name) {
			t.Errorf("ValidRevision(%q) leads out of its folder", name)
		}
	})
}
