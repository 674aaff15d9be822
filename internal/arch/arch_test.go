package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

const module = "github.com/grapevine-epp/grapevine"

// TestRepository holds the repository to the rules.
func TestRepository(t *testing.T) {
	tree, err := Load(os.DirFS("../.."), module)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Check(tree, House) {
		t.Error(f)
	}
}

// TestRules runs the rules over the trees in testdata, which break them. The
// file "want" of a tree lists the findings.
func TestRules(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no trees in testdata: %v", err)
	}
	small := Limits{FileLines: 40, FuncLines: 6, Interfaces: 2}
	broken := map[string]bool{}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			fsys, want := unpack(t, path)
			tree, err := Load(fsys, module)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range Check(tree, small) {
				broken[f.Rule] = true
				got = append(got, f.String())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
	for _, r := range rules {
		if !broken[r.name] && r.name != "host" {
			t.Errorf("no tree in testdata breaks the rule %q", r.name)
		}
	}
}

// TestHost builds its tree here: no file, not even one of testdata, may name a
// registry.
func TestHost(t *testing.T) {
	fsys := fstest.MapFS{
		"deploy/get.sh":   {Data: []byte("cd /tmp\ncurl https://" + "pypi" + ".org/simple\n")},
		"deploy/clean.sh": {Data: []byte("pip install mypypi.organic # pypi, org\n")},
	}
	tree, err := Load(fsys, module)
	if err != nil {
		t.Fatal(err)
	}
	want := []Finding{{"deploy/get.sh", 2, "host", "names the package registry " + "pypi" + ".org"}}
	if diff := cmp.Diff(want, Check(tree, House)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// TestTable checks the table itself: one row each, and no edge that points up
// or that the levels allow anyway.
func TestTable(t *testing.T) {
	level := map[string]int{}
	for _, r := range rows {
		if _, twice := level[r.pkg]; twice {
			t.Errorf("two rows for %s", r.pkg)
		}
		level[r.pkg] = r.level
	}
	for edge := range edges {
		from, ok := level[edge[0]]
		to, ok2 := level[edge[1]]
		if !ok || !ok2 || from != to {
			t.Errorf("edge %v is not between two rows of one level", edge)
		}
	}
	for _, names := range []map[string]bool{pure, hot} {
		for name := range names {
			if _, ok := level[name]; !ok {
				t.Errorf("%s is in a list of table.go and has no row", name)
			}
		}
	}
}

// TestHouseLimits breaks the limits of the house by one line each.
func TestHouseLimits(t *testing.T) {
	fn := func(lines int) string { return "func f() {" + strings.Repeat("\n", lines-1) + "}\n" }
	for _, tc := range []struct {
		source string
		want   int
	}{
		{fn(House.FuncLines), 0},
		{fn(House.FuncLines + 1), 1},
		{strings.Repeat("\n", House.FileLines-3), 0},
		{strings.Repeat("\n", House.FileLines-2), 1},
	} {
		fsys := fstest.MapFS{"pd/doc.go": {Data: []byte("// Package pd is one.\npackage pd\n\n" + tc.source)}}
		tree, err := Load(fsys, module)
		if err != nil {
			t.Fatal(err)
		}
		if got := Check(tree, House); len(got) != tc.want {
			t.Errorf("%d findings, want %d: %v", len(got), tc.want, got)
		}
	}
}

// unpack returns the tree in a txtar archive and the lines of its file "want".
func unpack(t *testing.T, path string) (fstest.MapFS, []string) {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fsys, want := fstest.MapFS{}, []string(nil)
	for _, f := range archive.Files {
		if f.Name == "want" {
			if text := strings.TrimSpace(string(f.Data)); text != "" {
				want = strings.Split(text, "\n")
			}
			continue
		}
		if _, twice := fsys[f.Name]; twice {
			t.Fatal(fmt.Errorf("%s: %s twice", path, f.Name))
		}
		fsys[f.Name] = &fstest.MapFile{Data: f.Data}
	}
	return fsys, want
}
