package commands

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/grapevine-epp/grapevine/internal/cli"
)

// sampleOf returns a value of a flag that is not its default.
func sampleOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "bool":
		return fmt.Sprint(f.DefValue != "true")
	case "duration":
		return "7m0s"
	case "int", "uint16":
		return "4711"
	case "float64":
		return "0.25"
	case "target":
		return "p95=3s"
	}
	return "sample"
}

// TestEveryFlagIsASetting: every flag of serve can be set by environment variable and by settings
// file, and no variable has the name of one that Kubernetes sets for Services.
func TestEveryFlagIsASetting(t *testing.T) {
	newServe(standard).Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name == cli.SettingsFlag || f.Name == "help" {
			return
		}
		want := sampleOf(f)
		byVariable := newServe(standard).Flags()
		if err := cli.ReadSettings(byVariable, []string{cli.EnvironmentName(f.Name) + "=" + want}); err != nil {
			t.Errorf("--%s: %v", f.Name, err)
		}
		path := filepath.Join(t.TempDir(), "settings.yaml")
		if err := os.WriteFile(path, []byte(f.Name+": "+want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		byFile := newServe(standard).Flags()
		if err := byFile.Parse([]string{"--settings", path}); err != nil {
			t.Fatal(err)
		}
		if err := cli.ReadSettings(byFile, nil); err != nil {
			t.Errorf("--%s: %v", f.Name, err)
		}
		for source, fl := range map[string]*pflag.FlagSet{"variable": byVariable, "file": byFile} {
			if got := strings.Trim(fl.Lookup(f.Name).Value.String(), "[]"); got != want || !fl.Changed(f.Name) {
				t.Errorf("--%s is %q by %s, want %q", f.Name, got, source, want)
			}
		}
		if name := strings.TrimPrefix(cli.EnvironmentName(f.Name), cli.EnvironmentPrefix); strings.HasPrefix(name, "PORT") || strings.HasPrefix(name, "SERVICE_") {
			t.Errorf("--%s: Kubernetes sets %s for a Service", f.Name, cli.EnvironmentName(f.Name))
		}
	})
}

// TestEveryFlagHasAGroup: each flag of serve is under one heading of its help, and the first heading
// has the ten common ones.
func TestEveryFlagHasAGroup(t *testing.T) {
	seen := map[string]bool{}
	fl := newServe(standard).Flags()
	for _, g := range serveGroups {
		for _, name := range g.Flags {
			if fl.Lookup(name) == nil || seen[name] {
				t.Errorf("%s: --%s does not exist or has two groups", g.Title, name)
			}
			seen[name] = true
		}
	}
	fl.VisitAll(func(f *pflag.Flag) {
		if !seen[f.Name] && f.Name != "help" {
			t.Errorf("--%s has no group in the help", f.Name)
		}
	})
	if n := len(serveGroups[0].Flags); n != 10 {
		t.Errorf("%d common flags, want 10", n)
	}
	var out bytes.Buffer
	cmd := newServe(standard)
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	common, other := strings.Index(out.String(), "Common flags:\n"), strings.Index(out.String(), "Group of replicas:\n")
	if common < 0 || other < common || strings.Count(out.String(), "--cluster-label ") != 1 {
		t.Errorf("help without groups:\n%s", out.String())
	}
}

// TestManualPages: each command has a manual page with its flags.
func TestManualPages(t *testing.T) {
	dir := t.TempDir()
	root := newRoot(standard)
	root.SetArgs([]string{"man", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, c := range root.Commands() {
		if !c.IsAvailableCommand() || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		page, err := os.ReadFile(filepath.Join(dir, "grapevine-"+c.Name()+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if name := "\\-\\-" + strings.ReplaceAll(f.Name, "-", "\\-"); !f.Hidden && !strings.Contains(string(page), name) {
				t.Errorf("the page of %s lacks --%s", c.Name(), f.Name)
			}
		})
		for _, l := range strings.Split(string(page), "\n") {
			if strings.HasPrefix(l, ".") && !strings.HasPrefix(l, ".TH ") && !strings.HasPrefix(l, ".SH ") && l != ".TP" && l != ".nf" && l != ".fi" && !strings.HasPrefix(l, ".B ") {
				t.Errorf("the page of %s has the unescaped line %q", c.Name(), l)
			}
		}
	}
}
