package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// critical are path prefixes of the code for trust checks, memory budgets and admission. A quarter
// of every sample is from this code.
var critical = []string{
	"internal/budget/", "internal/listen/", "pd/signed/", "pd/kvtransfer/", "picker/flow/", "picker/resolve.go", "picker/admit.go", "picker/wait.go",
	"extproc/internal/wire/", "extproc/headers.go", "extproc/request.go", "cluster/federation/link/", "internal/admin/guard.go", "pd/sidecar/targets.go",
}

// strict are path prefixes of critical code in which no rule may be removed without a failing test.
var strict = []string{
	"internal/admin/guard.go", "internal/budget/budget.go", "internal/budget/listen.go", "pd/signed/",
	"picker/admit.go", "picker/resolve.go", "picker/wait.go",
}

// excluded are folders of test kits, and folders whose code is tested only as part of larger
// programs.
var excluded = []string{"internal/lab/", "internal/testkit/", "internal/parts/", "internal/setup/", "internal/e2e/", "cmd/grapevine-lab/", "internal/arch/"}

// site is one possible random mutation.
type site struct {
	file    string
	line    int
	column  int // in bytes, from 1
	kind    string
	source  []byte
	order   int    // within the file, outer expressions first
	edits   []edit // that put the mutation behind a switch; "#" is its number
	invalid bool   // does not compile
}

func (s *site) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", s.file, s.line, s.column, s.kind)
}

// critical reports whether the mutation is in trust, budget or admission code.
func (s *site) critical() bool {
	return slices.ContainsFunc(critical, func(p string) bool { return strings.HasPrefix(s.file, p) })
}

// strict reports whether the mutation removes or inverts a rule of code whose rules are all tested. It
// must be caught. Limits that move by one and sums are not rules.
func (s *site) strict() bool {
	return slices.ContainsFunc(strict, func(p string) bool { return strings.HasPrefix(s.file, p) }) &&
		!slices.ContainsFunc([]string{"<", ">", "+", "-"}, func(op string) bool { return strings.HasPrefix(s.kind, op) })
}

// selection tells which sites a sample has.
type selection struct {
	seed string
	only string // patterns of files, separated by commas; empty: all
	kind string // part of the kind of mutation; empty: all
	run  string // regular expression of the names of tests; empty: all
}

// sample returns n sites of the product below the current folder, chosen by seed. A quarter of the
// sites are critical, and a quarter drop a line that copies a field from one record to another. A negative n
// returns all sites of rules that must be tested.
func sample(n int, from selection) ([]*site, error) {
	seed, only := from.seed, from.only
	patterns := strings.Split(only, ",")
	for _, p := range patterns {
		if _, err := filepath.Match(p, ""); err != nil {
			return nil, fmt.Errorf("pattern %q: %w", p, err)
		}
	}
	var all []*site
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != "." || d.Name() == "build"):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "_generated.go"):
			return nil
		case slices.ContainsFunc(excluded, func(p string) bool { return strings.HasPrefix(path, p) }):
			return nil
		}
		if only != "" && !slices.ContainsFunc(patterns, func(p string) bool { ok, _ := filepath.Match(p, path); return ok }) {
			return nil
		}
		found, err := sites(path)
		all = append(all, slices.DeleteFunc(found, func(s *site) bool { return !strings.Contains(s.kind, from.kind) })...)
		return err
	})
	if err != nil {
		return nil, err
	}
	h := fnv.New64a()
	h.Write([]byte(seed))
	random := rand.New(rand.NewPCG(h.Sum64(), 1))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var chosen []*site
	taken := map[*site]bool{}
	take := func(limit int, fits func(*site) bool) {
		for _, s := range all {
			if len(chosen) >= limit {
				return
			}
			if !taken[s] && fits(s) {
				taken[s] = true
				chosen = append(chosen, s)
			}
		}
	}
	if n < 0 {
		take(len(all), (*site).strict)
		return chosen, nil
	}
	take(n/8, (*site).strict)
	take(n/4, (*site).critical)
	take(n/2, func(s *site) bool { return s.kind == kindCopy })
	take(n, func(*site) bool { return true })
	return chosen, nil
}

const kindCopy = "drop a copied field"

// opposite maps operators to the one that replaces them.
var opposite = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR, token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LAND: token.LOR, token.LOR: token.LAND, token.ADD: token.SUB, token.SUB: token.ADD,
}

// sites returns every mutation that is possible in one file.
func sites(path string) (found []*site, err error) {
	source, err := os.ReadFile(path)
	if err != nil || bytes.Contains(source[:min(len(source), 200)], []byte("DO NOT EDIT")) {
		return nil, err
	}
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, path, source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	f := &finder{fset: fset, path: path, source: source}
	var parents []ast.Node
	ast.Inspect(tree, func(n ast.Node) bool {
		if n == nil {
			parents = parents[:len(parents)-1]
			return true
		}
		if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
			return false
		}
		var parent ast.Node
		if len(parents) > 0 {
			parent = parents[len(parents)-1]
		}
		f.visit(n, parent)
		parents = append(parents, n)
		return true
	})
	return f.found, nil
}

// finder collects the sites of a file.
type finder struct {
	fset   *token.FileSet
	path   string
	source []byte
	found  []*site
}

func (f *finder) at(p token.Pos) int { return f.fset.Position(p).Offset }

// before, behind and instead are the edits of a site.
func (f *finder) before(p token.Pos, text string) edit { return edit{f.at(p), f.at(p), text, false} }
func (f *finder) behind(p token.Pos, text string) edit { return edit{f.at(p), f.at(p), text, true} }
func (f *finder) instead(from token.Pos, length int, text string) edit {
	return edit{f.at(from), f.at(from) + length, text, false}
}

func (f *finder) add(kind string, at token.Pos, edits ...edit) {
	f.found = append(f.found, &site{file: f.path, line: f.fset.Position(at).Line, column: f.fset.Position(at).Column, kind: kind, source: f.source, order: len(f.found), edits: edits})
}

// text returns the source of an expression on one line; ok is false if it cannot be on one line.
func (f *finder) text(x ast.Expr) (text string, ok bool) {
	text = string(f.source[f.at(x.Pos()):f.at(x.End())])
	if !strings.Contains(text, "\n") {
		return text, true
	}
	return strings.ReplaceAll(text, "\n", " "), !strings.Contains(text, "//") && !strings.Contains(text, "func(") && !strings.Contains(text, "`")
}

func (f *finder) visit(n, parent ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && strings.EqualFold(key.Name, fieldName(n.Value)) {
			f.add(kindCopy, n.Pos(), f.before(n.Value.Pos(), "mutatedCopy(#, "), f.behind(n.Value.End(), ")"))
		}
	case *ast.AssignStmt:
		switch parent.(type) {
		case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
		default:
			return
		}
		if clause, ok := parent.(*ast.CommClause); ok && clause.Comm == n {
			return
		}
		if n.Tok == token.ASSIGN && len(n.Lhs) > 1 && len(n.Lhs) == len(n.Rhs) {
			f.several(n)
		}
		if n.Tok == token.ASSIGN && len(n.Lhs) == 1 && fieldName(n.Lhs[0]) != "" && strings.EqualFold(fieldName(n.Lhs[0]), fieldName(n.Rhs[0])) {
			f.add(kindCopy, n.Pos(), f.before(n.Pos(), "if !mutated(#) { "), f.behind(n.End(), " }"))
		}
	case *ast.ReturnStmt:
		for _, r := range n.Results {
			if id, ok := r.(*ast.Ident); ok && (id.Name == "true" || id.Name == "false") {
				f.add("return "+id.Name+" becomes its opposite", id.Pos(), f.instead(id.Pos(), len(id.Name), map[string]string{"true": "!mutated(#)", "false": "mutated(#)"}[id.Name]))
			}
		}
	case *ast.IfStmt:
		if n.Init == nil {
			f.add("a condition is never true", n.Cond.Pos(), f.before(n.Cond.Pos(), "!mutated(#) && ("), f.behind(n.Cond.End(), ")"))
		}
	}
}

// several adds the copied fields of an assignment to several variables.
func (f *finder) several(n *ast.AssignStmt) {
	for i, to := range n.Lhs {
		old, ok := f.text(to)
		if from := n.Rhs[i]; ok && fieldName(to) != "" && strings.EqualFold(fieldName(to), fieldName(from)) {
			f.add(kindCopy, from.Pos(), f.before(from.Pos(), "mutatedKeep(#, "), f.behind(from.End(), ", "+old+")"))
		}
	}
}

// binary adds the mutation of an operator.
func (f *finder) binary(n *ast.BinaryExpr) {
	to, known := opposite[n.Op]
	if !known || n.Op == token.ADD && isText(n) {
		return
	}
	x, okX := f.text(n.X)
	y, okY := f.text(n.Y)
	open, end := "(", ""
	switch n.Op {
	case token.EQL, token.NEQ:
		okX, okY = true, true
		open, end = "((", ") != mutated(#))"
	case token.LSS, token.GTR:
		end = " || mutated(#) && " + x + " == " + y + ")"
	case token.LEQ, token.GEQ:
		end = " && !(mutated(#) && " + x + " == " + y + "))"
	case token.LAND:
		open, end = "((", ") || mutated(#) && ("+x+" || "+y+"))"
	case token.LOR:
		open, end = "((", ") && (!mutated(#) || ("+x+") && ("+y+")))"
	case token.ADD, token.SUB:
		f.add(fmt.Sprintf("%s becomes %s", n.Op, to), n.OpPos, f.before(n.Pos(), map[token.Token]string{token.ADD: "mutatedAdd(#, ", token.SUB: "mutatedSub(#, "}[n.Op]),
			f.instead(n.OpPos, 1, ","), f.behind(n.End(), ")"))
		return
	}
	if okX && okY {
		f.add(fmt.Sprintf("%s becomes %s", n.Op, to), n.OpPos, f.before(n.Pos(), open), f.behind(n.End(), end))
	}
}

// fieldName returns the name of the field that an expression selects, "" for any other expression.
func fieldName(x ast.Expr) string {
	if s, ok := x.(*ast.SelectorExpr); ok {
		return s.Sel.Name
	}
	return ""
}

// isText reports whether an addition visibly joins strings.
func isText(n *ast.BinaryExpr) bool {
	for _, x := range []ast.Expr{n.X, n.Y} {
		switch x := x.(type) {
		case *ast.BasicLit:
			if x.Kind == token.STRING {
				return true
			}
		case *ast.BinaryExpr:
			if isText(x) {
				return true
			}
		}
	}
	return false
}

// excerpt returns the mutated source line.
func (s *site) excerpt() string {
	lines := strings.Split(string(s.source), "\n")
	return strings.TrimSpace(lines[s.line-1])
}

// leastCaught returns how many of n random mutations must be caught, if share of all possible ones are.
// A sample has fewer by chance: two standard deviations are allowed.
func leastCaught(n int, share float64) int {
	mean, deviation := share*float64(n), math.Sqrt(float64(n)*share*(1-share))
	return int(math.Ceil(mean - 2*deviation))
}
