package arch

import (
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	qualified = regexp.MustCompile(`(^|[^\w/."\-])\[?([a-z][a-z0-9]*)\.([A-Z]\w*)`)
	goPath    = regexp.MustCompile(`\b((?:[a-z0-9_]+/)+[a-z0-9_]+\.(?:go|sh|py))\b`)
)

// declared maps the name of each package of the module to the exported names that packages of that
// name declare.
func (t *Tree) declared() map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for _, f := range t.files {
		if f.ast == nil {
			continue
		}
		name := strings.TrimSuffix(f.ast.Name.Name, "_test")
		if all[name] == nil {
			all[name] = map[string]bool{}
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					all[name][d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						all[name][s.Name.Name] = true
					case *ast.ValueSpec:
						for _, n := range s.Names {
							all[name][n.Name] = true
						}
					}
				}
			}
		}
	}
	delete(all, "main")
	return all
}

// staleName returns a qualified name in a text whose package is of this module and does not declare it.
func staleName(text string, declared map[string]map[string]bool) string {
	for _, m := range qualified.FindAllStringSubmatch(text, -1) {
		if names, ok := declared[m[2]]; ok && !names[m[3]] {
			return m[2] + "." + m[3]
		}
	}
	return ""
}

// TestProseNamesWhatExists checks comments and Markdown pages: a name of a package of this module,
// and a path of a source file, must exist.
func TestProseNamesWhatExists(t *testing.T) {
	root := os.DirFS("../..")
	tree, err := Load(root, module)
	if err != nil {
		t.Fatal(err)
	}
	declared := tree.declared()
	check := func(file string, line int, text string) {
		if name := staleName(text, declared); name != "" {
			t.Errorf("%s:%d: names %s, which does not exist", file, line, name)
		}
		for _, m := range goPath.FindAllString(text, -1) {
			if _, err := fs.Stat(root, m); err != nil {
				if _, err := fs.Stat(root, path.Join(path.Dir(file), m)); err != nil && isOurs(m) {
					t.Errorf("%s:%d: names the file %s, which does not exist", file, line, m)
				}
			}
		}
	}
	for _, f := range tree.files {
		if f.ast == nil {
			continue
		}
		for _, g := range f.ast.Comments {
			for _, c := range g.List {
				check(f.path, tree.fset.Position(c.Pos()).Line, c.Text)
			}
		}
	}
	err = fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "build" || p != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !strings.HasSuffix(p, ".md") || p == "CHANGELOG.md", p == "docs/design/renames.md":
			return nil
		}
		text, err := fs.ReadFile(root, p)
		for i, line := range strings.Split(string(text), "\n") {
			check(p, i+1, line)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

const topFolders = "cmd indexer events cluster picker extproc pd deploy internal"

// isOurs reports whether a path begins with a top-level folder of the repository.
func isOurs(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return slices.Contains(strings.Fields(topFolders), first)
}

// TestStringsHaveNoGoNames checks string literals outside of tests: a package-qualified Go name in a
// text that users read is the work of a rename that edited a string.
func TestStringsHaveNoGoNames(t *testing.T) {
	tree, err := Load(os.DirFS("../.."), module)
	if err != nil {
		t.Fatal(err)
	}
	declared := tree.declared()
	tree.code(func(f *file) {
		if r, ok := Rows.row(f.pkg); ok && r.Part == Kit {
			return
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				return true
			}
			for _, m := range qualified.FindAllStringSubmatch(text, -1) {
				if declared[m[2]][m[3]] {
					t.Errorf("%s:%d: the string %q has the Go name %s.%s", f.path, tree.fset.Position(lit.Pos()).Line, text, m[2], m[3])
				}
			}
			return true
		})
	})
}

// TestDocCommentsNameTheirFunction checks that no doc comment begins with the name of another
// function of the package.
func TestDocCommentsNameTheirFunction(t *testing.T) {
	tree, err := Load(os.DirFS("../.."), module)
	if err != nil {
		t.Fatal(err)
	}
	functions := map[string]map[string]bool{}
	each := func(do func(f *file, d *ast.FuncDecl)) {
		for _, f := range tree.files {
			if f.ast == nil {
				continue
			}
			for _, d := range f.ast.Decls {
				if d, ok := d.(*ast.FuncDecl); ok {
					do(f, d)
				}
			}
		}
	}
	each(func(f *file, d *ast.FuncDecl) {
		if functions[f.pkg] == nil {
			functions[f.pkg] = map[string]bool{}
		}
		functions[f.pkg][d.Name.Name] = true
	})
	each(func(f *file, d *ast.FuncDecl) {
		word, _, _ := strings.Cut(strings.TrimSpace(d.Doc.Text()), " ")
		word = strings.TrimRight(word, ":,")
		// One-word names are also ordinary words; only names of two words are certain.
		if word != d.Name.Name && functions[f.pkg][word] && strings.ToLower(word[1:]) != word[1:] {
			t.Errorf("%s:%d: the comment of %s begins with %s", f.path, tree.fset.Position(d.Pos()).Line, d.Name.Name, word)
		}
	})
}
