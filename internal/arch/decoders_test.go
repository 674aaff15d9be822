package arch

import (
	"go/ast"
	"os"
	"regexp"
	"sort"
	"strings"
	"testing"
)

// decoderName matches functions that read data of other parties.
var decoderName = regexp.MustCompile(`^([dD]ecode|[pP]arse|[rR]ead|[uU]nmarshal|[mM]erge)($|[A-Z])`)

// elsewhere are decoders that fuzz targets of other packages reach.
var elsewhere = map[string]string{
	"internal/server.parseConfig": "picker/config FuzzParse",
	"internal/server.Merge":       "cluster/internal/core FuzzReceive; the value is an address, which is checked as a whole",
	"internal/share/facts.Merge":  "internal/share/facts FuzzSoftState, of the value",
	"picker/monitor.Merge":        "picker/monitor FuzzEvidence, of the value",
}

// TestDecodersAreFuzzed searches the product for functions that read bytes and report success or
// failure. A fuzz target of their package must reach each of these functions, by the names in
// function bodies.
func TestDecodersAreFuzzed(t *testing.T) {
	tree, err := Load(os.DirFS("../.."), module)
	if err != nil {
		t.Fatal(err)
	}
	product := map[string]bool{}
	for _, r := range Rows {
		product[r.Pkg] = r.Part == Product
	}
	calls := map[string]map[string]map[string]bool{} // by package and function: the names in its body
	decoders := map[string]bool{}
	for _, f := range tree.files {
		if f.ast == nil || !product[f.pkg] {
			continue
		}
		if calls[f.pkg] == nil {
			calls[f.pkg] = map[string]map[string]bool{}
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			name := fn.Name.Name
			if calls[f.pkg][name] == nil {
				calls[f.pkg][name] = map[string]bool{}
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					calls[f.pkg][name][id.Name] = true
				}
				return true
			})
			if !f.test && decoderName.MatchString(name) && takesBytes(fn) {
				decoders[f.pkg+"."+name] = true
			}
		}
	}
	var unreached []string
	for d := range decoders {
		at := strings.LastIndexByte(d, '.')
		if elsewhere[d] == "" && !fuzzed(calls[d[:at]])[d[at+1:]] {
			unreached = append(unreached, d)
		}
	}
	sort.Strings(unreached)
	for _, d := range unreached {
		t.Errorf("no fuzz target of its package reaches the decoder %s", d)
	}
	if len(decoders) < 30 {
		t.Errorf("only %d decoders are found: the test looks for the wrong thing", len(decoders))
	}
	for d := range elsewhere {
		if !decoders[d] {
			t.Errorf("%s is no decoder", d)
		}
	}
}

// unswept are fuzz targets whose input is not read as bytes by a decoder.
var unswept = map[string]string{
	"extproc.FuzzAnyOrder":    "its bytes are random draws",
	"picker/endpoint.FuzzFit": "its arguments are numbers",

	"internal/testkit/sweep.FuzzPlanted": "it calls Fuzz of its own package",
}

// TestFuzzTargetsAreSwept checks that fuzz targets call sweep.Fuzz instead of f.Fuzz, so that tests try
// systematic changes of their seeds.
func TestFuzzTargetsAreSwept(t *testing.T) {
	tree, err := Load(os.DirFS("../.."), module)
	if err != nil {
		t.Fatal(err)
	}
	swept := 0
	for _, f := range tree.files {
		if f.ast == nil || !f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil || !strings.HasPrefix(fn.Name.Name, "Fuzz") || unswept[f.pkg+"."+fn.Name.Name] != "" {
				continue
			}
			calls := false
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Fuzz" {
					id, ok := s.X.(*ast.Ident)
					calls = calls || ok && id.Name == "sweep"
				}
				return true
			})
			if !calls {
				t.Errorf("%s: %s calls f.Fuzz, want sweep.Fuzz", f.pkg, fn.Name.Name)
				continue
			}
			swept++
		}
	}
	if swept < 70 {
		t.Errorf("only %d fuzz targets are found", swept)
	}
}

// fuzzed returns the names that a package's fuzz targets reach.
func fuzzed(calls map[string]map[string]bool) map[string]bool {
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		for next := range calls[name] {
			if calls[next] != nil {
				visit(next)
			}
		}
	}
	for name := range calls {
		if strings.HasPrefix(name, "Fuzz") {
			visit(name)
		}
	}
	return seen
}

// takesBytes reports whether a function takes a []byte to read and returns an error or a bool.
func takesBytes(fn *ast.FuncDecl) bool {
	if fn.Type.Results == nil || fn.Name.Name == "Read" {
		return false
	}
	says := false
	for _, r := range fn.Type.Results.List {
		if id, ok := r.Type.(*ast.Ident); ok && (id.Name == "error" || id.Name == "bool") {
			says = true
		}
	}
	for _, p := range fn.Type.Params.List {
		a, ok := p.Type.(*ast.ArrayType)
		if !ok || a.Len != nil {
			continue
		}
		if id, ok := a.Elt.(*ast.Ident); ok && id.Name == "byte" {
			return says
		}
	}
	return false
}
