package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// critical are path prefixes of the code for trust checks, memory budgets and admission. A quarter
// of every sample is from this code.
var critical = []string{
	"internal/budget/", "internal/listen/", "pd/signed/", "pd/kvtransfer/", "picker/flow/", "picker/resolve.go", "picker/admit.go", "picker/wait.go",
	"extproc/internal/wire/", "extproc/headers.go", "extproc/request.go", "cluster/federation/link/", "internal/admin/guard.go", "pd/sidecar/targets.go",
}

// excluded are folders of test kits, and folders whose code is tested only as part of larger
// programs.
var excluded = []string{"internal/lab/", "internal/testkit/", "internal/parts/", "internal/setup/", "internal/e2e/", "cmd/grapevine-lab/", "internal/arch/"}

// site is one possible random mutation: the bytes from start to end of a file become text.
type site struct {
	file       string
	line       int
	kind       string
	start, end int
	text       string
	source     []byte
}

func (s *site) String() string { return fmt.Sprintf("%s:%d: %s", s.file, s.line, s.kind) }

// sample returns n sites of the product below the current folder, chosen by seed. A quarter of the
// sites are critical, and a quarter drop a line that copies a field from one record to another. If
// only is not empty, all sites are in files that match this pattern.
func sample(n int, seed, only string) ([]*site, error) {
	if _, err := filepath.Match(only, ""); err != nil {
		return nil, fmt.Errorf("pattern %q: %w", only, err)
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
		if matches, _ := filepath.Match(only, path); !matches && only != "" {
			return nil
		}
		found, err := sites(path)
		all = append(all, found...)
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
	take(n/4, func(s *site) bool {
		return slices.ContainsFunc(critical, func(p string) bool { return strings.HasPrefix(s.file, p) })
	})
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
	tree, err := parser.ParseFile(fset, path, source, 0)
	if err != nil {
		return nil, err
	}
	add := func(kind string, from, to token.Pos, text string) {
		p := fset.Position(from)
		found = append(found, &site{path, p.Line, kind, p.Offset, fset.Position(to).Offset, text, source})
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			to, ok := opposite[n.Op]
			if ok && !(n.Op == token.ADD && isText(n)) {
				add(fmt.Sprintf("%s becomes %s", n.Op, to), n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), to.String())
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && strings.EqualFold(key.Name, fieldName(n.Value)) {
				add(kindCopy, n.Pos(), n.End(), "")
			}
		case *ast.AssignStmt:
			if n.Tok == token.ASSIGN && len(n.Lhs) == 1 && fieldName(n.Lhs[0]) != "" && strings.EqualFold(fieldName(n.Lhs[0]), fieldName(n.Rhs[0])) {
				add(kindCopy, n.Pos(), n.End(), "_ = "+string(source[fset.Position(n.Rhs[0].Pos()).Offset:fset.Position(n.Rhs[0].End()).Offset]))
			}
		case *ast.ReturnStmt:
			for _, r := range n.Results {
				if id, ok := r.(*ast.Ident); ok && (id.Name == "true" || id.Name == "false") {
					add("return "+id.Name+" becomes its opposite", id.Pos(), id.End(), map[string]string{"true": "false", "false": "true"}[id.Name])
				}
			}
		case *ast.IfStmt:
			if n.Init == nil {
				add("a condition is never true", n.Cond.Pos(), n.Cond.End(), "false && ("+string(source[fset.Position(n.Cond.Pos()).Offset:fset.Position(n.Cond.End()).Offset])+")")
			}
		}
		return true
	})
	return found, nil
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

// apply returns the file with the mutation made. An element dropped from a literal takes its comma along.
func (s *site) apply() []byte {
	end := s.end
	if s.text == "" {
		for end < len(s.source) && (s.source[end] == ' ' || s.source[end] == ',') {
			end++
			if s.source[end-1] == ',' {
				break
			}
		}
	}
	return slices.Concat(s.source[:s.start], []byte(s.text), s.source[end:])
}

// runRandom tries n random mutations, two at a time, until the time limit. It fails when the tests
// catch fewer of the mutations that compile than leastCaught allows.
func runRandom(n int, seed, only string, share float64, limit time.Duration) error {
	list, err := sample(n, seed, only)
	if err != nil {
		return err
	}
	importers, err := importersOf()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	fmt.Printf("%d random mutations, seed %s\n", len(list), seed)
	var mu sync.Mutex
	var caught, tried int
	var alive []string
	skipped := each(list, limit, func(worker int, s *site) {
		began := time.Now()
		verdict := s.try(filepath.Join(dir, strconv.Itoa(worker)), importers)
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf("%-9s %5.1fs  %s\n", verdict, time.Since(began).Seconds(), s)
		switch verdict {
		case invalid, slow:
			return
		case noticed:
			caught++
		case survived:
			alive = append(alive, s.String()+"\n    "+s.excerpt())
		}
		tried++
	})
	fmt.Printf("caught %d of %d random mutations (%d not tried for lack of time)\n", caught, tried, skipped)
	for _, s := range alive {
		fmt.Println("survivor:", s)
	}
	if want := leastCaught(tried, share); tried == 0 || caught < want {
		return fmt.Errorf("tests caught %d of %d random mutations, want at least %d: a share of %.0f%%, less two standard deviations of a sample of this size", caught, tried, want, 100*share)
	}
	return nil
}

// leastCaught returns how many of n random mutations must be caught, if share of all possible ones are.
// A sample has fewer by chance: two standard deviations are allowed.
func leastCaught(n int, share float64) int {
	mean, deviation := share*float64(n), math.Sqrt(float64(n)*share*(1-share))
	return int(math.Ceil(mean - 2*deviation))
}

// excerpt returns the mutated source line.
func (s *site) excerpt() string {
	lines := strings.Split(string(s.source), "\n")
	return strings.TrimSpace(lines[s.line-1])
}

// Verdicts that do not count.
const (
	invalid = "invalid" // the mutation does not compile
	slow    = "slow"    // the tests of one mutation took longer than slowAfter
)

const slowAfter = 3 * time.Minute

// try runs the tests of the mutated package, and of the packages that import it while these pass.
func (s *site) try(dir string, importers map[string][]string) string {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "ERROR " + err.Error()
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	path, err := filepath.Abs(s.file)
	if err != nil {
		return "ERROR " + err.Error()
	}
	b, _ := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err := errors.Join(os.WriteFile(changed, s.apply(), 0o600), os.WriteFile(overlay, b, 0o600)); err != nil {
		return "ERROR " + err.Error()
	}
	pkg := "./" + filepath.ToSlash(filepath.Dir(s.file))
	ctx, cancel := context.WithTimeout(context.Background(), slowAfter)
	defer cancel()
	for _, tests := range append([]string{pkg}, importers[pkg]...) {
		cmd := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-vet=off", "-failfast", "-timeout", "150s", tests)
		cmd.Env = append(os.Environ(), "GRAPEVINE_QUICK=1") // without Envoy and other parts from outside
		cmd.WaitDelay = time.Second                         // the test binary goes on for a while
		out, err := cmd.CombinedOutput()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return slow
		case bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
			return invalid
		default:
			return noticed
		}
	}
	return survived
}

// unhelpful are parts of the paths of importers whose tests are not run: end-to-end tests, the laboratory, and
// tests of the commands and the server, which take minutes or build the program without the mutation.
var unhelpful = []string{"/internal/e2e", "/internal/lab", "/internal/commands", "/internal/server", "/cmd/"}

// importersOf maps each package to at most three packages with tests that import it, the smallest
// first, as patterns of go test. Unhelpful packages are left out.
func importersOf() (map[string][]string, error) {
	out, err := exec.Command("go", "list", "-f", `{{.Dir}} {{len .GoFiles}} {{len .TestGoFiles}} {{len .XTestGoFiles}} {{join .Imports ","}} {{.Module.Path}} {{.Module.Dir}}`, "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	type importer struct {
		pkg   string
		files int
	}
	found := map[string][]importer{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 7 || f[2] == "0" && f[3] == "0" || slices.ContainsFunc(unhelpful, func(p string) bool { return strings.Contains(f[0], p) }) {
			continue
		}
		var files int
		_, _ = fmt.Sscan(f[1], &files)
		for _, to := range strings.Split(f[4], ",") {
			if inside, ok := strings.CutPrefix(to, f[5]+"/"); ok {
				found["./"+inside] = append(found["./"+inside], importer{"." + strings.TrimPrefix(f[0], f[6]), files})
			}
		}
	}
	all := map[string][]string{}
	for pkg, list := range found {
		slices.SortFunc(list, func(a, b importer) int { return cmp.Or(cmp.Compare(a.files, b.files), strings.Compare(a.pkg, b.pkg)) })
		for _, i := range list[:min(len(list), 3)] {
			all[pkg] = append(all[pkg], i.pkg)
		}
	}
	return all, nil
}
