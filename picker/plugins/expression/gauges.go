package expression

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// Gauges returns the custom gauges that an expression names, sorted. It returns none for an expression
// that does not compile.
func Gauges(source string) []string {
	env, err := environment()
	if err != nil {
		return nil
	}
	tree, issues := env.Compile(source)
	if issues.Err() != nil {
		return nil
	}
	var names []string
	add := func(call ast.CallExpr, of, key int) {
		args := call.Args()
		if args[of].Kind() != ast.IdentKind || args[of].AsIdent() != "load.gauges" || args[key].Kind() != ast.LiteralKind {
			return
		}
		if name, ok := args[key].AsLiteral().(types.String); ok && !slices.Contains(names, string(name)) {
			names = append(names, string(name))
		}
	}
	ast.PostOrderVisit(tree.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		switch call := e.AsCall(); call.FunctionName() {
		case operators.Index:
			add(call, 0, 1)
		case operators.In:
			add(call, 1, 0)
		}
	}))
	slices.Sort(names)
	return names
}
