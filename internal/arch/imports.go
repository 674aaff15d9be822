package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// imports compares the imports of code with the table. Tests are exempt: an external test may use
// fixtures of its surroundings.
func imports(c checked, report report) {
	c.code(func(f *file) {
		from, ok := c.table.row(f.pkg)
		if !ok {
			return // reported by the rule "table"
		}
		for _, spec := range f.ast.Imports {
			target, inside := strings.CutPrefix(importPath(spec), c.module+"/")
			if !inside {
				continue
			}
			if to, ok := c.table.row(target); ok && !from.mayImport(to) {
				report(f.path, c.line(spec), fmt.Sprintf("%s imports %s", from, to))
			}
		}
	})
}

// noPackage is the finding for a row whose package is gone.
const noPackage = "a row in the import table and no package"

// tables compares the table with the tree: each package has one row, and each row
// a package.
func tables(c checked, report report) {
	seen := map[string]bool{}
	c.code(func(f *file) {
		if seen[f.pkg] {
			return
		}
		seen[f.pkg] = true
		if _, ok := c.table.row(f.pkg); !ok {
			report(f.path, 0, fmt.Sprintf("package %s has no row in the import table (internal/arch/table.go)", f.pkg))
		}
	})
	rows := map[string]bool{}
	for _, r := range c.table {
		switch {
		case rows[r.Pkg]:
			report(r.Pkg, 0, "two rows in the import table")
		case !seen[r.Pkg]:
			report(r.Pkg, 0, noPackage)
		}
		rows[r.Pkg] = true
	}
}

func importPath(spec *ast.ImportSpec) string {
	path, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return ""
	}
	return path
}

// impure are the standard packages that a pure row may not import.
var impure = []string{
	"context", "crypto/rand", "io/ioutil", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "os/exec", "syscall",
}

// clocks are the functions of package time that read or wait for a clock.
var clocks = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

// pureRows searches pure rows for I/O, logs, goroutines and clocks.
func pureRows(t checked, report report) {
	t.code(func(f *file) {
		r, ok := t.table.row(f.pkg)
		if !ok || r.Marks&Pure == 0 {
			return
		}
		for _, spec := range f.ast.Imports {
			if path := importPath(spec); slices.Contains(impure, path) || (path == "sync" && r.Marks&Locks == 0) {
				report(f.path, t.line(spec), fmt.Sprintf("%s imports %s", f.pkg, path))
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				report(f.path, t.line(n), fmt.Sprintf("%s starts a goroutine", f.pkg))
			case *ast.SelectStmt, *ast.SendStmt:
				report(f.path, t.line(n), fmt.Sprintf("%s uses channels", f.pkg))
			case *ast.SelectorExpr:
				if isName(n.X, "time") && slices.Contains(clocks, n.Sel.Name) {
					report(f.path, t.line(n), fmt.Sprintf("%s uses the clock: time.%s", f.pkg, n.Sel.Name))
				}
			}
			return true
		})
	})
}

func isName(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}
