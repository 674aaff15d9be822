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

// TestRepository checks the repository's rules and prints its shape.
func TestRepository(t *testing.T) {
	tree, err := Load(os.DirFS("../.."), module)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Check(tree, Rows) {
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

// TestTable: a row of a missing package, and two rows of one package, are found.
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
	if diff := cmp.Diff(want, Check(tree, table)); diff != "" {
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
	if diff := cmp.Diff(want, Check(tree, nil)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// TestSummary checks that the summary names the longest import chain.
func TestSummary(t *testing.T) {
	fsys := fstest.MapFS{
		"base/doc.go":   {Data: []byte("// Package base is one.\npackage base\n")},
		"middle/doc.go": {Data: []byte("// Package middle is one.\npackage middle\n\nimport _ \"" + module + "/base\"\n")},
	}
	tree, err := Load(fsys, module)
	if err != nil {
		t.Fatal(err)
	}
	const want = "longest chain of imports: 2: middle → base\n"
	if got := Summary(tree, small[:2]); !strings.Contains(got, want) {
		t.Errorf("Summary() = %q, want a line %q", got, want)
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
