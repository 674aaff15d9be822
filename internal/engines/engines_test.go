package engines

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTokenizerOf(t *testing.T) {
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
	for name, want := range map[string]string{own: own, "org/name": snapshot, "org/other": "", "": ""} {
		if got := tokenizerOf(name, ""); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
