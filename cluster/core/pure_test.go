package core_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPure: the state machine has no clock, goroutine, lock, socket or log,
// and no randomness. What it does is a function of what it is told.
func TestPure(t *testing.T) {
	allowed := []string{
		"bytes", "cmp", "encoding/binary", "errors", "maps", "slices", "sort", "strings", "time",
		"github.com/cespare/xxhash/v2",
	}
	for _, dir := range []string{".", "../group", "../logs", "../wire"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			checkPure(t, f, allowed)
		}
	}
}

func checkPure(t *testing.T, path string, allowed []string) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, imp := range file.Imports {
		p := strings.Trim(imp.Path.Value, `"`)
		if !slices.Contains(allowed, p) && !strings.Contains(p, "/cluster/") {
			t.Errorf("%s imports %s", path, p)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt:
			t.Errorf("%s: goroutines or channels", fset.Position(n.Pos()))
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"}, n.Sel.Name) {
				t.Errorf("%s: looks at a clock", fset.Position(n.Pos()))
			}
		}
		return true
	})
}
