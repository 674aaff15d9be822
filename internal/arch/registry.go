package arch

import (
	"fmt"
	"go/ast"
	"go/token"
)

// registries searches for functions that write to a package-level variable. Registries are filled
// this way, and tests become dependent on each other.
func registries(t checked, report report) {
	globals := map[string]map[string]bool{} // package -> names
	t.code(func(f *file) {
		names := globals[f.pkg]
		if names == nil {
			names = map[string]bool{}
			globals[f.pkg] = names
		}
		for name := range variables(f) {
			names[name.Name] = true
		}
	})
	t.code(func(f *file) {
		for fn := range functions(f) {
			if fn.Body == nil {
				continue
			}
			local := locals(fn)
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				for _, target := range written(n) {
					if globals[f.pkg][target.Name] && !local[target.Name] {
						report(f.path, t.line(target), fmt.Sprintf("%s writes to the package-level variable %s", fn.Name.Name, target.Name))
					}
				}
				return true
			})
		}
	})
}

// written returns the variables that a statement writes to: assigned as a
// whole, or in an element.
func written(n ast.Node) []*ast.Ident {
	var targets []ast.Expr
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			targets = n.Lhs
		}
	case *ast.IncDecStmt:
		targets = []ast.Expr{n.X}
	case *ast.CallExpr:
		if (isName(n.Fun, "delete") || isName(n.Fun, "clear")) && len(n.Args) > 0 {
			targets = n.Args[:1]
		}
	}
	var names []*ast.Ident
	for _, target := range targets {
		for {
			index, ok := target.(*ast.IndexExpr)
			if !ok {
				break
			}
			target = index.X
		}
		if id, ok := target.(*ast.Ident); ok && id.Name != "_" {
			names = append(names, id)
		}
	}
	return names
}

// locals returns every name that the function declares anywhere: as receiver,
// parameter, result or variable.
func locals(fn *ast.FuncDecl) map[string]bool {
	names := map[string]bool{}
	add := func(x ast.Expr) {
		if id, ok := x.(*ast.Ident); ok {
			names[id.Name] = true
		}
	}
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			for _, name := range n.Names {
				add(name)
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				add(name)
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, x := range n.Lhs {
					add(x)
				}
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				add(n.Key)
				add(n.Value)
			}
		}
		return true
	})
	return names
}
