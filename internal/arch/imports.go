package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// imports compares what code imports with the table. Tests are free: an
// external test may use what plays the surroundings.
func imports(t *Tree, _ Limits, report report) {
	missing := map[string]bool{}
	t.code(func(f *file) {
		from, ok := rowOf(f.pkg)
		if !ok {
			if !missing[f.pkg] {
				missing[f.pkg] = true
				report(f.path, 0, fmt.Sprintf("package %s has no row in the import table (internal/arch/table.go)", f.pkg))
			}
			return
		}
		for _, spec := range f.ast.Imports {
			target, inside := strings.CutPrefix(importPath(spec), t.module+"/")
			if !inside {
				continue
			}
			if to, ok := rowOf(target); ok && !mayImport(from, to) {
				report(f.path, t.line(spec), fmt.Sprintf("%s (level %d) imports %s (level %d)", f.pkg, from.level, target, to.level))
			}
		}
	})
}

func importPath(spec *ast.ImportSpec) string {
	path, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return ""
	}
	return path
}

// impure are the standard packages that a pure row does without.
var impure = []string{
	"context", "crypto/rand", "io/ioutil", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "os/exec", "syscall",
}

// clocks are the functions of package time that read or wait for a clock.
var clocks = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

// pureRows looks for I/O, logs, goroutines and clocks in rows that have none.
func pureRows(t *Tree, _ Limits, report report) {
	t.code(func(f *file) {
		r, ok := rowOf(f.pkg)
		if !ok || !pure[r.pkg] {
			return
		}
		for _, spec := range f.ast.Imports {
			if path := importPath(spec); slices.Contains(impure, path) || (path == "sync" && !locking[r.pkg]) {
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
