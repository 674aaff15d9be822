package arch

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strings"
)

// file is one file of the tree, parsed if it is Go source.
type file struct {
	path      string // slash-separated, from the root of the tree
	pkg       string // path of its folder within the module; "" at the root
	lines     int
	text      []byte
	ast       *ast.File // nil if the file is not Go or does not parse
	err       error     // why a Go file does not parse
	test      bool
	generated bool
}

// Tree is a loaded source tree. It is read-only.
type Tree struct {
	module string
	fset   *token.FileSet
	files  []*file
}

// largest is the size in bytes above which a file that is not Go is data and is skipped.
const largest = 1 << 20

// Load reads all files below fsys, the root of the named module, except the files of version
// control and builds. It does not parse Go files in testdata folders.
func Load(fsys fs.FS, module string) (*Tree, error) {
	t := &Tree{module: module, fset: token.NewFileSet()}
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p == ".git" || p == "build" {
				return fs.SkipDir
			}
			if _, err := fs.Stat(fsys, path.Join(p, "go.mod")); err == nil && p != "." {
				return fs.SkipDir // another module
			}
			return nil
		}
		return t.add(fsys, p, d)
	})
	return t, err
}

func (t *Tree) add(fsys fs.FS, p string, d fs.DirEntry) error {
	if !d.Type().IsRegular() {
		return nil
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	source := strings.HasSuffix(p, ".go") && !strings.Contains("/"+p, "/testdata/")
	if info.Size() > largest && !source {
		return nil
	}
	text, err := fs.ReadFile(fsys, p)
	if err != nil {
		return err
	}
	f := &file{path: p, text: text, lines: bytes.Count(text, []byte("\n"))}
	if source {
		t.parse(f)
	}
	t.files = append(t.files, f)
	return nil
}

func (t *Tree) parse(f *file) {
	if dir := path.Dir(f.path); dir != "." {
		f.pkg = dir
	}
	f.test = strings.HasSuffix(f.path, "_test.go")
	f.ast, f.err = parser.ParseFile(t.fset, f.path, f.text, parser.ParseComments|parser.SkipObjectResolution)
	if f.err != nil {
		f.ast = nil
		return
	}
	f.generated = ast.IsGenerated(f.ast)
}

// source calls visit with every Go file that parses and is not generated.
func (t *Tree) source(visit func(*file)) {
	for _, f := range t.files {
		if f.ast != nil && !f.generated {
			visit(f)
		}
	}
}

// code is source without tests.
func (t *Tree) code(visit func(*file)) {
	t.source(func(f *file) {
		if !f.test {
			visit(f)
		}
	})
}

func (t *Tree) line(n ast.Node) int { return t.fset.Position(n.Pos()).Line }
