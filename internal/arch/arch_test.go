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

// TestRepository holds the repository to the rules, and prints its shape.
func TestRepository(t *testing.T) {
	tree, err := Load(os.DirFS("../.."), module)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Check(tree, Rows, House) {
		t.Error(f)
	}
	t.Log("\n" + Summary(tree, Rows))
}

// small is a table for the trees in testdata.
var small = Table{
	{"base", 1, Product, Pure | Hot},
	{"middle", 2, Product, Hot},
	{"middle/inner", 2, Product, 0},
	{"top", 3, Product, 0},
	{"lab", 4, Lab, 0},
	{"kit", 4, Kit, 0},
}

// TestRules runs the rules over the trees in testdata, which break them. The
// file "want" of a tree lists the findings. Rows without a package are not
// reported there, since no tree has all packages.
func TestRules(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no trees in testdata: %v", err)
	}
	limits := Limits{PackageLines: 40, Packages: 3, Levels: 2, Interfaces: 2}
	broken := map[string]bool{}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			fsys, want := unpack(t, path)
			tree, err := Load(fsys, module)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range Check(tree, small, limits) {
				broken[f.Rule] = true
				if f.Text != noPackage {
					got = append(got, f.String())
				}
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

// TestTable: a package that is gone, and one with two rows, are found.
func TestTable(t *testing.T) {
	fsys := fstest.MapFS{"base/doc.go": {Data: []byte("// Package base is one.\npackage base\n")}}
	tree, err := Load(fsys, module)
	if err != nil {
		t.Fatal(err)
	}
	table := Table{{"base", 1, Product, 0}, {"base", 2, Product, 0}, {"gone", 1, Product, 0}}
	want := []Finding{
		{"base", 0, "table", "two rows in the import table"},
		{"gone", 0, "table", noPackage},
	}
	if diff := cmp.Diff(want, Check(tree, table, House)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
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
	if diff := cmp.Diff(want, Check(tree, nil, House)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// TestLimits breaks each limit by one.
func TestLimits(t *testing.T) {
	fsys := fstest.MapFS{
		"base/doc.go":   {Data: []byte("// Package base is one.\npackage base\n")},
		"middle/doc.go": {Data: []byte("// Package middle is one.\npackage middle\n\nimport _ \"" + module + "/base\"\n")},
	}
	tree, err := Load(fsys, module)
	if err != nil {
		t.Fatal(err)
	}
	table := small[:2]
	for _, tc := range []struct {
		limits Limits
		want   int
	}{
		{Limits{PackageLines: 4, Packages: 2, Levels: 2}, 0},
		{Limits{PackageLines: 3, Packages: 2, Levels: 2}, 1},
		{Limits{PackageLines: 4, Packages: 1, Levels: 2}, 1},
		{Limits{PackageLines: 4, Packages: 2, Levels: 1}, 1},
	} {
		if got := Check(tree, table, tc.limits); len(got) != tc.want {
			t.Errorf("%+v: %d findings, want %d: %v", tc.limits, len(got), tc.want, got)
		}
	}
	if s := Summary(tree, table); !strings.Contains(s, "longest chain of imports: 2: middle → base\n") {
		t.Errorf("summary:\n%s", s)
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
