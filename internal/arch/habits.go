package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strings"
)

func syntax(t checked, report report) {
	for _, f := range t.files {
		if f.err != nil {
			report(f.path, 0, f.err.Error())
		}
	}
}

// anyMaps searches hot rows for maps to any.
func anyMaps(t checked, report report) {
	t.code(func(f *file) {
		if r, ok := t.table.row(f.pkg); !ok || r.Marks&Hot == 0 {
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

// docs requires a package comment: in doc.go for a package, and in any file for a command.
func docs(t checked, report report) {
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

// registryHosts are package registries. The machine's configuration selects the registry, so no
// file names one.
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

func hosts(t checked, report report) {
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
