package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestBuildChecksTheCommit: without the name of a commit, build would remove the whole cache folder
// instead of the programs of earlier commits.
func TestBuildChecksTheCommit(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("GRAPEVINE_CACHE", cache)
	kept := filepath.Join(cache, "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, commit := range []string{"", "..", ".", "HEAD"} {
		if _, err := build(t.Context(), commit); !errors.Is(err, errCommit) {
			t.Errorf("build(%q) = %v, want %v", commit, err, errCommit)
		}
		if _, err := os.Stat(kept); err != nil {
			t.Fatalf("build(%q) removed files of the cache: %v", commit, err)
		}
	}
}
