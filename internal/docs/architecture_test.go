package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/arch"
)

// walk is a numbered list of ARCHITECTURE.md: the functions that a reader opens one after the other
// to follow a path through the program.
type walk struct {
	name string
	hops []hop
}

// hop is one function of a walk. far means that the previous function does not name it. Then it
// runs on another goroutine, or is called through a field or an interface under another name.
type hop struct {
	file, fn string
	far      bool
}

var (
	walkHead = regexp.MustCompile(`^### (An? .+|The end .+)$`)
	walkHop  = regexp.MustCompile("^\\d+\\. (⇒ )?`([^`]+\\.go)` \\*\\*([A-Za-z0-9_.]+)\\*\\*")
	goFile   = regexp.MustCompile("`((?:[a-z0-9_]+/)*[a-z0-9_]+\\.go)`")
	goFolder = regexp.MustCompile("^\\| `([a-z0-9_/-]+)` \\|")
)

const architecture = "../../ARCHITECTURE.md"

func walks(t *testing.T, page string) (list []*walk) {
	t.Helper()
	for _, line := range strings.Split(page, "\n") {
		if m := walkHead.FindStringSubmatch(line); m != nil {
			list = append(list, &walk{name: m[1]})
			continue
		}
		if m := walkHop.FindStringSubmatch(line); m != nil && len(list) > 0 {
			w := list[len(list)-1]
			w.hops = append(w.hops, hop{m[2], m[3], m[1] != ""})
		}
	}
	return list
}

// TestWalks checks that every hop of a walk is declared in its file and called by an earlier hop.
func TestWalks(t *testing.T) {
	list := walks(t, read(t, architecture))
	if len(list) != 4 {
		t.Fatalf("%d walks, want those of a request, an event, a join and a decision's end", len(list))
	}
	for _, w := range list {
		t.Run(w.name, func(t *testing.T) { w.check(t) })
	}
}

func (w *walk) check(t *testing.T) {
	entries, last := 0, ""
	var bodies []string
	for i, h := range w.hops {
		body, err := declaration(t, h)
		if err != nil {
			t.Error(err)
			continue
		}
		if dir := path.Dir(h.file); dir != last {
			entries, last = entries+1, dir
		}
		name := h.fn[strings.LastIndexByte(h.fn, '.')+1:]
		named := i == 0 || h.far
		for _, b := range bodies {
			named = named || regexp.MustCompile(`\b`+name+`\b`).MatchString(b)
		}
		if !named {
			t.Errorf("no hop before it names %s of %s", h.fn, h.file)
		}
		bodies = append(bodies, body)
	}
	t.Logf("%d places, packages are entered %d times", len(w.hops), entries)
}

// declaration returns the text of the function that h names.
func declaration(t *testing.T, h hop) (string, error) {
	src := read(t, "../../"+h.file)
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, h.file, src, 0)
	if err != nil {
		return "", err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if ok && declared(f) == h.fn {
			return src[fset.Position(f.Pos()).Offset:fset.Position(f.End()).Offset], nil
		}
	}
	return "", fmt.Errorf("%s has no function %s", h.file, h.fn)
}

// declared returns Type.Func of a method, Func of a function.
func declared(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if id, ok := typ.(*ast.Ident); ok {
		return id.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

// TestArchitectureFiles: the files and folders that the page names are there.
func TestArchitectureFiles(t *testing.T) {
	page := read(t, architecture)
	names := goFile.FindAllStringSubmatch(page, -1)
	if len(names) < 40 {
		t.Errorf("the page names %d files", len(names))
	}
	for _, m := range names {
		if strings.Contains(m[1], "/") {
			read(t, "../../"+m[1])
		}
	}
	for _, line := range strings.Split(page, "\n") {
		if m := goFolder.FindStringSubmatch(line); m != nil {
			read(t, "../../"+m[1]+"/doc.go")
		}
	}
}

// TestArchitecturePackages: every package of the product has a line on the page.
func TestArchitecturePackages(t *testing.T) {
	page := read(t, architecture)
	for _, row := range arch.Rows {
		if row.Part == arch.Product && !strings.Contains(page, "\n| `"+row.Pkg+"` | ") {
			t.Errorf("%s is not named", row.Pkg)
		}
	}
}
