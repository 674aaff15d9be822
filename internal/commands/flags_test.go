package commands

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// rewriting reports whether golden files are to be rewritten. datadriven defines the flag.
func rewriting() bool { return flag.Lookup("rewrite").Value.String() == "true" }

const (
	flagsFrom = "<!-- flags: written by go test ./internal/commands -run TestFlagTable -rewrite -->\n"
	flagsTo   = "<!-- end of flags -->\n"
)

// TestFlagTable compares the manual's table with the flags of serve.
func TestFlagTable(t *testing.T) {
	const path = "../../docs/flags.md"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(b), flagsFrom)
	_, after, closed := strings.Cut(rest, flagsTo)
	if !found || !closed {
		t.Fatalf("%s has no markers around its flag table", path)
	}
	want := before + flagsFrom + flagTable() + flagsTo + after
	if rewriting() {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(b) != want {
		t.Errorf("%s differs from the flags of serve: run go test ./internal/commands -run TestFlagTable -rewrite", path)
	}
}

func flagTable() string {
	var b strings.Builder
	b.WriteString("\n| flag | default | meaning |\n|---|---|---|\n")
	newServe(standard).Flags().VisitAll(func(f *pflag.Flag) {
		value := "`" + f.DefValue + "`"
		switch {
		case f.Name == "help":
			return
		case f.Name == "name":
			value = "the host's name"
		case f.DefValue == "" || f.DefValue == "[]":
			value = "–"
		}
		fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", f.Name, value, strings.ReplaceAll(f.Usage, "|", "\\|"))
	})
	b.WriteString("\n")
	return b.String()
}
