package arch

import (
	"flag"
	"fmt"
	"go/types"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/go/packages"
)

var rewriteAPI = flag.Bool("rewrite", false, "write the report of the public API anew")

// publicPackages are the packages whose exported names follow semantic versioning (package epp).
var publicPackages = []string{"epp", "plugin", "cycle", "request", "endpoint"}

const apiReport = "../../picker/epp/api.txt"

// TestPublicAPI compares the exported names of the public packages with the report in picker/epp/api.txt.
// A change of the report belongs into the same commit, and one that removes lines belongs into the
// changelog under "Library", because it may break plugins.
func TestPublicAPI(t *testing.T) {
	got, err := publicAPI()
	if err != nil {
		t.Fatal(err)
	}
	if *rewriteAPI {
		if err := os.WriteFile(apiReport, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	raw, err := os.ReadFile(apiReport)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(raw)), "\n")
	removed, added := difference(want, got), difference(got, want)
	if len(removed) > 0 {
		t.Errorf("removed from the public API, or changed; plugins that use it no longer compile:\n%s", strings.Join(removed, "\n"))
	}
	if len(added) > 0 {
		t.Errorf("new in the public API:\n%s", strings.Join(added, "\n"))
	}
	if t.Failed() {
		t.Log("if this is intended, run make golden, and describe removals in CHANGELOG.md under Library")
	}
}

// TestPublicAPIReport: the report has the kinds of names that plugins use, and no unexported one.
func TestPublicAPIReport(t *testing.T) {
	got, err := publicAPI()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"epp: func Main(options ...picker/epp.Option)",
		"cycle: type Scorer interface, Score(",
		"request: type Request struct, Path string",
		"endpoint: const RoleDecode ",
	} {
		if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("no line %q in the report", want)
		}
	}
	for _, line := range got {
		if fields := strings.Fields(line); len(fields) < 3 {
			t.Errorf("line %q has no name", line)
		}
	}
}

func difference(a, b []string) (only []string) {
	for _, line := range a {
		if !slices.Contains(b, line) {
			only = append(only, line)
		}
	}
	return only
}

// publicAPI returns one line for each exported name of the public packages, with its type.
var publicAPI = sync.OnceValues(func() ([]string, error) {
	const module = "github.com/grapevine-epp/grapevine/"
	var paths []string
	for _, name := range publicPackages {
		paths = append(paths, module+"picker/"+name)
	}
	loaded, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedImports | packages.NeedExportFile | packages.NeedTypes}, paths...)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, pkg := range loaded {
		if len(pkg.Errors) > 0 {
			return nil, pkg.Errors[0]
		}
		r := apiLines{pkg: pkg.Types, name: pkg.Name}
		for _, name := range pkg.Types.Scope().Names() {
			if o := pkg.Types.Scope().Lookup(name); o.Exported() {
				r.object(o)
			}
		}
		lines = append(lines, r.lines...)
	}
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], module, "")
	}
	slices.Sort(lines)
	return slices.Compact(lines), nil
})

// apiLines collects the lines of one package.
type apiLines struct {
	pkg   *types.Package
	name  string
	lines []string
}

func (r *apiLines) add(format string, args ...any) {
	r.lines = append(r.lines, r.name+": "+fmt.Sprintf(format, args...))
}

// text returns a type as other packages write it, but with whole import paths.
func (r *apiLines) text(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string { return p.Path() })
}

func (r *apiLines) object(o types.Object) {
	switch o := o.(type) {
	case *types.Const:
		r.add("const %s %s = %s", o.Name(), r.text(o.Type()), o.Val())
	case *types.Var:
		r.add("var %s %s", o.Name(), r.text(o.Type()))
	case *types.Func:
		r.add("func %s%s", o.Name(), strings.TrimPrefix(r.text(o.Type()), "func"))
	case *types.TypeName:
		r.typeName(o)
	}
}

func (r *apiLines) typeName(o *types.TypeName) {
	if o.IsAlias() {
		r.add("type %s = %s", o.Name(), r.text(types.Unalias(o.Type())))
		return
	}
	named, ok := o.Type().(*types.Named)
	if !ok {
		return
	}
	switch under := named.Underlying().(type) {
	case *types.Struct:
		r.add("type %s struct", o.Name())
		for f := range under.Fields() {
			if f.Exported() {
				r.add("type %s struct, %s %s", o.Name(), f.Name(), r.text(f.Type()))
			}
		}
	case *types.Interface:
		r.add("type %s interface", o.Name())
		for m := range under.Methods() {
			r.add("type %s interface, %s%s", o.Name(), m.Name(), strings.TrimPrefix(r.text(m.Type()), "func"))
		}
		return
	default:
		r.add("type %s %s", o.Name(), r.text(under))
	}
	methods := types.NewMethodSet(types.NewPointer(named))
	for m := range methods.Methods() {
		f, ok := m.Obj().(*types.Func)
		if !ok || !f.Exported() || f.Pkg() != r.pkg && len(m.Index()) == 1 {
			continue
		}
		receiver := o.Name()
		if types.NewMethodSet(named).Lookup(f.Pkg(), f.Name()) == nil {
			receiver = "*" + receiver
		}
		r.add("method (%s) %s%s", receiver, f.Name(), strings.TrimPrefix(r.text(f.Type()), "func"))
	}
}
