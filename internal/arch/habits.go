package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strings"
)

func syntax(t *Tree, _ Limits, report report) {
	for _, f := range t.files {
		if f.err != nil {
			report(f.path, 0, f.err.Error())
		}
	}
}

func inits(t *Tree, _ Limits, report report) {
	t.code(func(f *file) {
		for fn := range functions(f) {
			if fn.Recv == nil && fn.Name.Name == "init" {
				report(f.path, t.line(fn), "init function: construct it where it is used")
			}
		}
	})
}

// anyMaps looks for map[string]any and its kin in hot rows.
func anyMaps(t *Tree, _ Limits, report report) {
	t.code(func(f *file) {
		if r, ok := rowOf(f.pkg); !ok || !hot[r.pkg] {
			return
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if m, ok := n.(*ast.MapType); ok && isAny(m.Value) {
				report(f.path, t.line(m), fmt.Sprintf("%s is on a hot path and uses a map to any", f.pkg))
			}
			return true
		})
	})
}

func isAny(x ast.Expr) bool {
	if i, ok := x.(*ast.InterfaceType); ok {
		return i.Methods.NumFields() == 0
	}
	return isName(x, "any")
}

func fileSizes(t *Tree, limits Limits, report report) {
	t.source(func(f *file) {
		if f.lines > limits.FileLines {
			report(f.path, 0, fmt.Sprintf("%d lines, more than %d", f.lines, limits.FileLines))
		}
	})
}

func funcSizes(t *Tree, limits Limits, report report) {
	t.code(func(f *file) {
		for fn := range functions(f) {
			lines := t.fset.Position(fn.End()).Line - t.line(fn) + 1
			if lines > limits.FuncLines {
				report(f.path, t.line(fn), fmt.Sprintf("function %s has %d lines, more than %d", fn.Name.Name, lines, limits.FuncLines))
			}
		}
	})
}

func interfaces(t *Tree, limits Limits, report report) {
	var places []string
	t.code(func(f *file) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if i, ok := spec.Type.(*ast.InterfaceType); ok && !isConstraint(i) {
				places = append(places, f.pkg+"."+spec.Name.Name)
			}
			return true
		})
	})
	if len(places) > limits.Interfaces {
		report(".", 0, fmt.Sprintf("%d interfaces, more than %d: %s", len(places), limits.Interfaces, strings.Join(places, " ")))
	}
}

// isConstraint reports whether the interface lists types, so that it can only
// bound a type parameter.
func isConstraint(i *ast.InterfaceType) bool {
	for _, m := range i.Methods.List {
		switch m.Type.(type) {
		case *ast.BinaryExpr, *ast.UnaryExpr:
			return true
		}
	}
	return false
}

// docs wants a package comment in doc.go of each package, and anywhere in a
// command.
func docs(t *Tree, _ Limits, report report) {
	documented, seen := map[string]bool{}, []string{}
	name := map[string]string{}
	t.code(func(f *file) {
		if _, ok := name[f.pkg]; !ok {
			seen = append(seen, f.pkg)
		}
		name[f.pkg] = f.ast.Name.Name
		if f.ast.Doc != nil && (path.Base(f.path) == "doc.go" || f.ast.Name.Name == "main") {
			documented[f.pkg] = true
		}
	})
	for _, pkg := range seen {
		switch {
		case documented[pkg]:
		case name[pkg] == "main":
			report(pkg, 0, "the command has no package comment")
		default:
			report(pkg, 0, "the package has no doc.go with a package comment")
		}
	}
}

// skips looks for tests that step aside. Fuzz targets and properties may
// reject an input.
func skips(t *Tree, _ Limits, report report) {
	t.source(func(f *file) {
		if !f.test {
			return
		}
		for fn := range functions(f) {
			if !strings.HasPrefix(fn.Name.Name, "Test") || fn.Body == nil {
				continue
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if lit, ok := n.(*ast.FuncLit); ok && !takesTest(lit) {
					return false
				}
				if sel, ok := n.(*ast.SelectorExpr); ok && isName(sel.X, "t") && strings.HasPrefix(sel.Sel.Name, "Skip") {
					report(f.path, t.line(sel), fmt.Sprintf("%s skips: what it needs is installed by `make setup`, or it fails", fn.Name.Name))
				}
				return true
			})
		}
	})
}

// takesTest reports whether t means a testing.T within the function: it has no
// parameter of that name, or one of that type.
func takesTest(lit *ast.FuncLit) bool {
	for _, field := range lit.Type.Params.List {
		for _, name := range field.Names {
			if name.Name != "t" {
				continue
			}
			star, ok := field.Type.(*ast.StarExpr)
			if !ok {
				return false
			}
			sel, ok := star.X.(*ast.SelectorExpr)
			return ok && isName(sel.X, "testing")
		}
	}
	return true
}

// registryHosts are package registries. Where packages come from is the
// machine's configuration, so no file names one.
var registryHosts = hostPattern([][]string{
	{"pypi", "org"},
	{"files", "pythonhosted", "org"},
	{"registry", "npmjs", "org"},
	{"registry", "yarnpkg", "com"},
	{"proxy", "golang", "org"},
	{"sum", "golang", "org"},
	{"deb", "debian", "org"},
	{"archive", "ubuntu", "com"},
	{"static", "crates", "io"},
})

func hostPattern(hosts [][]string) *regexp.Regexp {
	var alternatives []string
	for _, labels := range hosts {
		alternatives = append(alternatives, strings.Join(labels, `\.`))
	}
	return regexp.MustCompile(`(?i)\b(` + strings.Join(alternatives, "|") + `)\b`)
}

func hosts(t *Tree, _ Limits, report report) {
	for _, f := range t.files {
		if at := registryHosts.FindIndex(f.text); at != nil {
			line := 1 + strings.Count(string(f.text[:at[0]]), "\n")
			report(f.path, line, fmt.Sprintf("names the package registry %s", f.text[at[0]:at[1]]))
		}
	}
}

// functions yields the file's functions and methods.
func functions(f *file) func(yield func(*ast.FuncDecl) bool) {
	return func(yield func(*ast.FuncDecl) bool) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && !yield(fn) {
				return
			}
		}
	}
}

// variables yields the names that the file declares at package level with
// var.
func variables(f *file) func(yield func(*ast.Ident) bool) {
	return func(yield func(*ast.Ident) bool) {
		for _, d := range f.ast.Decls {
			gen, ok := d.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, spec := range gen.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					if !yield(name) {
						return
					}
				}
			}
		}
	}
}
