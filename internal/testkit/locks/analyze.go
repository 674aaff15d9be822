package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/callgraph"
	"golang.org/x/tools/go/callgraph/cha"
	"golang.org/x/tools/go/callgraph/vta"
	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/go/ssa"
	"golang.org/x/tools/go/ssa/ssautil"
)

const module = "github.com/grapevine-epp/grapevine/"

// finding is a sink that is reached from a forbidden place.
type finding struct {
	where string   // mutex, or the entry of the request path
	fn    string   // the function that holds the mutex
	sink  string   // function called
	in    string   // the function that calls the sink
	kind  string   // in words
	pos   string   // of the call under the mutex
	chain []string // from fn to in
}

// key names the finding in accepted.txt: no line numbers, so that it survives edits.
func (f *finding) key() string {
	return fmt.Sprintf("%s: %s in %s", f.where, f.sink, f.in)
}

// analyze loads the product packages that match patterns and returns their findings.
func analyze(dir string, patterns []string) ([]finding, error) {
	pkgs, err := packages.Load(&packages.Config{Dir: dir, Mode: packages.LoadSyntax | packages.NeedModule}, patterns...)
	if err != nil {
		return nil, err
	}
	var errs []error
	packages.Visit(pkgs, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			errs = append(errs, e)
		}
	})
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	pkgs = slices.DeleteFunc(pkgs, func(p *packages.Package) bool {
		return !strings.Contains(p.PkgPath, "/testdata/") && (strings.HasPrefix(p.PkgPath, module+"internal/lab") || strings.HasPrefix(p.PkgPath, module+"internal/testkit") ||
			strings.HasPrefix(p.PkgPath, module+"cmd/grapevine-lab") || strings.HasSuffix(p.PkgPath, "test"))
	})
	prog, _ := ssautil.Packages(pkgs, ssa.InstantiateGenerics)
	prog.Build()
	a := &analysis{prog: prog, graph: graphOf(prog), sinks: map[*ssa.Function][]reached{}, effects: map[*ssa.Function]*effect{}}
	for fn := range a.graph.Nodes {
		if fn != nil && ours(fn) {
			a.funcs = append(a.funcs, fn)
		}
	}
	slices.SortFunc(a.funcs, func(x, y *ssa.Function) int { return cmp.Compare(x.RelString(nil), y.RelString(nil)) })
	a.settleEffects()
	for _, fn := range a.funcs {
		a.underLocks(fn)
	}
	a.requestPath()
	slices.SortFunc(a.found, func(x, y finding) int { return cmp.Compare(x.key(), y.key()) })
	return slices.CompactFunc(a.found, func(x, y finding) bool { return x.key() == y.key() }), nil
}

func graphOf(prog *ssa.Program) *callgraph.Graph {
	all := ssautil.AllFunctions(prog)
	return vta.CallGraph(all, cha.CallGraph(prog))
}

// ours reports whether a function has a body of this module, or of a test's.
func ours(fn *ssa.Function) bool { return len(fn.Blocks) > 0 }

type analysis struct {
	prog    *ssa.Program
	graph   *callgraph.Graph
	funcs   []*ssa.Function
	sinks   map[*ssa.Function][]reached
	effects map[*ssa.Function]*effect
	found   []finding
}

// reached is a sink that a function reaches, by the first call on the way.
type reached struct {
	sink
	in  *ssa.Function // that calls it
	via *ssa.Function // callee of the function; nil if it calls the sink itself
}

// callees returns the module's functions that a call may run before it returns: the callees in the
// call graph, and functions passed to other modules.
func (a *analysis) callees(fn *ssa.Function, call ssa.CallInstruction) []*ssa.Function {
	if _, async := call.(*ssa.Go); async {
		return nil
	}
	var list []*ssa.Function
	if n := a.graph.Nodes[fn]; n != nil {
		for _, e := range n.Out {
			if e.Site == call && ours(e.Callee.Func) {
				list = append(list, e.Callee.Func)
			}
		}
	}
	if callee := call.Common().StaticCallee(); callee != nil && !ours(callee) && !runsLater(callee) {
		for _, arg := range call.Common().Args {
			if f := funcOf(arg); f != nil && ours(f) {
				list = append(list, f)
			}
		}
	}
	return list
}

// funcOf returns the function that a value is, if that is plain to see.
func funcOf(v ssa.Value) *ssa.Function {
	switch v := v.(type) {
	case *ssa.Function:
		return v
	case *ssa.MakeClosure:
		return v.Fn.(*ssa.Function)
	case *ssa.ChangeType:
		return funcOf(v.X)
	}
	return nil
}

// runsLater reports whether a function of another module calls its argument on another
// goroutine, or only stores it.
func runsLater(fn *ssa.Function) bool {
	switch fn.RelString(nil) {
	case "(*sync.WaitGroup).Go", "time.AfterFunc", "context.AfterFunc", "(*golang.org/x/sync/errgroup.Group).Go":
		return true
	}
	return strings.HasPrefix(fn.RelString(nil), "github.com/prometheus/client_golang") || strings.HasPrefix(fn.RelString(nil), "(*google.golang.org/grpc")
}

// sinksOf returns the sinks that a function can reach before it returns.
func (a *analysis) sinksOf(fn *ssa.Function) []reached {
	if list, ok := a.sinks[fn]; ok {
		return list
	}
	a.collect(fn)
	return a.sinks[fn]
}

// collect fills a.sinks for fn by a search over the calls that it can make.
func (a *analysis) collect(root *ssa.Function) {
	type step struct{ fn, first *ssa.Function }
	seen := map[*ssa.Function]bool{root: true}
	known := map[string]bool{}
	var list []reached
	for todo := []step{{root, nil}}; len(todo) > 0; {
		at := todo[0]
		todo = todo[1:]
		for _, call := range callsOf(at.fn) {
			s, is := a.sinkOf(at.fn, call)
			if is && (!s.callback || at.fn.Package() == root.Package()) && !known[s.name+at.fn.String()] {
				known[s.name+at.fn.String()] = true
				list = append(list, reached{s, at.fn, at.first})
			}
			if is && !s.callback {
				continue
			}
			for _, callee := range a.callees(at.fn, call) {
				if !seen[callee] {
					seen[callee] = true
					first := at.first
					if first == nil {
						first = callee
					}
					todo = append(todo, step{callee, first})
				}
			}
		}
	}
	a.sinks[root] = list
}

// callsOf lists the calls of a function, deferred ones included.
func callsOf(fn *ssa.Function) (list []ssa.CallInstruction) {
	for _, b := range fn.Blocks {
		for _, i := range b.Instrs {
			if c, ok := i.(ssa.CallInstruction); ok {
				if _, async := c.(*ssa.Go); !async {
					list = append(list, c)
				}
			}
		}
	}
	return list
}

// chain returns how fn reaches a sink.
func (a *analysis) chain(fn *ssa.Function, r reached) []string {
	names := []string{short(fn)}
	for range 30 {
		if r.via == nil {
			break
		}
		fn = r.via
		names = append(names, short(fn))
		next := slices.IndexFunc(a.sinksOf(fn), func(o reached) bool { return o.name == r.name && o.in == r.in })
		if next < 0 {
			break
		}
		r = a.sinksOf(fn)[next]
	}
	return names
}

// short names a function without the module's path; instances of a generic function have
// one name.
func short(fn *ssa.Function) string {
	for fn.Parent() != nil { // closures count as their function
		fn = fn.Parent()
	}
	if o := fn.Origin(); o != nil {
		fn = o
	}
	name := strings.ReplaceAll(fn.RelString(nil), module, "")
	return name
}

func pathOf(t types.Type) string {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := t.(*types.Named); ok && n.Obj().Pkg() != nil {
		return strings.TrimPrefix(n.Obj().Pkg().Path(), module) + "." + n.Obj().Name()
	}
	return t.String()
}
