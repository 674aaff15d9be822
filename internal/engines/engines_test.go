package engines

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTokenizersAreFoundLocally(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	own := t.TempDir()
	snapshot := filepath.Join(cache, "models--org--name", "snapshots", "abc")
	for _, dir := range []string{own, snapshot} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for root, want := range map[string]string{own: own, "org/name": snapshot, "org/other": "", "": "", "../name": ""} {
		list, err := Tokenizers(nil, []Engine{{Models: []Model{{Name: "served", Root: root}}}})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(list) == 1 {
			got = list[0].Folder
		}
		if got != want {
			t.Errorf("Tokenizers() of a model with root %q = %q, want %q", root, got, want)
		}
	}
}
