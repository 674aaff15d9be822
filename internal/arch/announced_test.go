package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"testing"
)

// ownSizes are functions that allocate a size that this machine reports.
var ownSizes = map[string]bool{
	"internal/prompt/vocab.readBounded": true, // the bounded size of a file
}

// TestNothingIsMadeForAnnouncedLengths searches the product for functions that allocate a number of
// bytes and then wait for all bytes. The peer chooses that number; budget.ReadAnnounced allocates
// only for received bytes.
func TestNothingIsMadeForAnnouncedLengths(t *testing.T) {
	tree, err := Load(os.DirFS("../.."), module)
	if err != nil {
		t.Fatal(err)
	}
	product := map[string]bool{}
	for _, r := range Rows {
		product[r.Pkg] = r.Part == Product
	}
	found := map[string]bool{}
	for _, f := range tree.files {
		if f.ast == nil || f.test || !product[f.pkg] {
			continue
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil && waitsForAll(fn.Body) {
				name := f.pkg + "." + fn.Name.Name
				if found[name] = true; !ownSizes[name] {
					t.Errorf("%s makes room for a length that may be announced, and waits for it: use budget.ReadAnnounced", name)
				}
			}
		}
	}
	for name := range ownSizes {
		if !found[name] {
			t.Errorf("%s does no such thing", name)
		}
	}
}

// TestHeadsOfAnswersAreBounded: every transport of the product sets a limit for the response
// header. The library's default is 10 MB for each engine.
func TestHeadsOfAnswersAreBounded(t *testing.T) {
	tree, err := Load(os.DirFS("../.."), module)
	if err != nil {
		t.Fatal(err)
	}
	product, transports := map[string]bool{}, 0
	for _, r := range Rows {
		product[r.Pkg] = r.Part == Product
	}
	for _, f := range tree.files {
		if f.ast == nil || f.test || !product[f.pkg] {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			if s, ok := lit.Type.(*ast.SelectorExpr); !ok || !isName(s.X, "http") || s.Sel.Name != "Transport" {
				return true
			}
			transports++
			for _, e := range lit.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok && isName(kv.Key, "MaxResponseHeaderBytes") {
					return true
				}
			}
			t.Errorf("%s: a transport without MaxResponseHeaderBytes", f.path)
			return true
		})
	}
	if transports < 5 {
		t.Errorf("only %d transports are found: the test looks for the wrong thing", transports)
	}
}

// waitsForAll reports whether a body fills with io.ReadFull a buffer whose size is not a literal
// constant.
func waitsForAll(body *ast.BlockStmt) (waits bool) {
	made := map[string]bool{}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, right := range n.Rhs {
				if left, ok := n.Lhs[min(i, len(n.Lhs)-1)].(*ast.Ident); ok && madeBytes(right) {
					made[left.Name] = true
				}
			}
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); !ok || s.Sel.Name != "ReadFull" && s.Sel.Name != "ReadAtLeast" || len(n.Args) < 2 {
				return true
			}
			into := n.Args[1]
			if s, ok := into.(*ast.SliceExpr); ok {
				into = s.X
			}
			id, ok := into.(*ast.Ident)
			waits = waits || madeBytes(into) || ok && made[id.Name]
		}
		return true
	})
	return waits
}

// madeBytes reports whether x is make([]byte, n) with n no literal.
func madeBytes(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok || !isName(call.Fun, "make") || len(call.Args) < 2 {
		return false
	}
	kind, ok := call.Args[0].(*ast.ArrayType)
	if !ok || !isName(kind.Elt, "byte") {
		return false
	}
	_, literal := call.Args[1].(*ast.BasicLit)
	return !literal
}

// TestWaitsForAll: functions that the search finds, and functions that it ignores.
func TestWaitsForAll(t *testing.T) {
	for body, want := range map[string]bool{
		"b := make([]byte, n); io.ReadFull(r, b)":                true,
		"b := make([]byte, n, m); io.ReadFull(r, b[:n])":         true,
		"var b []byte; b = make([]byte, n); io.ReadFull(r, b)":   true,
		"io.ReadFull(r, make([]byte, be.Uint16(h)))":             true,
		"b := make([]byte, 16); io.ReadFull(r, b)":               false,
		"var b [4]byte; io.ReadFull(r, b[:])":                    false,
		"b := make([]byte, n); copy(b, c); io.ReadFull(r, h[:])": false,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc f() {"+body+"}", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := waitsForAll(f.Decls[0].(*ast.FuncDecl).Body); got != want {
			t.Errorf("%s: %v", body, got)
		}
	}
}
