package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/tools/go/packages"
)

// trial tries random mutations.
type trial struct {
	list      []*site
	dir       string
	importers map[string][]string
	tests     *regexp.Regexp // names of the tests to run
	limit     time.Duration
	end       time.Time // start no further mutation after it
}

// subject is a package with its mutations. Other packages have none at that time, so the compiler's cache
// serves them.
type subject struct {
	*trial
	pkg, dir string

	mu    sync.Mutex
	built map[string]func() (*binary, error)
}

// Verdicts of random mutations that do not count.
const (
	invalid = "invalid" // does not compile
	untried = "untried" // for lack of time, or because tests that may catch it fail here without it
)

const unreached = "UNREACHED" // survived: no test executes the line

// runRandom tries n random mutations until the time limit, two at a time. It fails when the tests catch fewer than leastCaught allows, or miss a strict one. A negative n tries all strict ones.
func runRandom(n int, from selection, share float64, limit time.Duration) error {
	list, err := sample(n, from)
	if err != nil {
		return err
	}
	equivalent, err := readEquivalent(defaultEquivalent)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(s *site) bool { return equivalent[s.key()] != "" })
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tests, err := regexp.Compile(from.run)
	if err != nil {
		return err
	}
	t := &trial{list: list, dir: dir, tests: tests, limit: limit, end: time.Now().Add(limit)}
	if from.run == "" { // names are those of one package
		if t.importers, err = importersOf(); err != nil {
			return err
		}
	}
	fmt.Printf("%d random mutations, seed %s\n", len(list), from.seed)
	verdicts, err := t.try()
	if err != nil {
		return err
	}
	var caught, tried, left int
	var alive, broken []string
	for i, s := range list {
		switch verdicts[i] {
		case invalid:
			continue
		case untried:
			left++
			continue
		case noticed:
			caught++
		default:
			alive = append(alive, fmt.Sprintf("survivor: %s (%s)\n    %s", s, strings.ToLower(verdicts[i]), s.excerpt()))
			if s.strict() {
				broken = append(broken, s.String())
			}
		}
		tried++
	}
	for _, s := range alive {
		fmt.Println(s)
	}
	fmt.Printf("caught %d of %d random mutations (%d not tried)\n", caught, tried, left)
	if len(broken) > 0 {
		err = fmt.Errorf("no test fails when these rules of trust, budget and admission code are removed. Add the missing tests, or list the mutations in %s with the reason why they change nothing:\n%s",
			defaultEquivalent, strings.Join(broken, "\n"))
	}
	if want := leastCaught(tried, share); caught < want {
		err = errors.Join(err, fmt.Errorf("tests caught %d of %d random mutations, want at least %d: a share of %.0f%%, less two standard deviations of a sample of this size", caught, tried, want, 100*share))
	}
	return err
}

// byPackage groups the numbers of the mutations by package.
func (t *trial) byPackage() (packages []string, of map[string][]int) {
	of = map[string][]int{}
	for i, s := range t.list {
		if pkg := s.pkg(); !s.invalid {
			if of[pkg] == nil {
				packages = append(packages, pkg)
			}
			of[pkg] = append(of[pkg], i)
		}
	}
	return packages, of
}

// pkg returns the package of the site, as a pattern of go test.
func (s *site) pkg() string { return "./" + filepath.ToSlash(filepath.Dir(s.file)) }

var inFile = regexp.MustCompile(`^(?:vet: )?([^\s:]+\.go):(\d+):\d+`)

// compile writes the overlay. It marks sites as invalid until the package compiles.
func (t *subject) compile() error {
	for range 20 {
		texts, err := overlay(t.dir, t.pkg, t.list)
		if err != nil {
			return err
		}
		loaded, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo,
			Overlay: texts}, t.pkg)
		if err != nil {
			return err
		}
		marked := 0
		var messages []string
		for _, pkg := range loaded {
			for _, e := range pkg.Errors {
				messages = append(messages, e.Error())
				marked += t.mark(e.Error())
			}
		}
		if len(messages) == 0 {
			return nil
		}
		if marked == 0 {
			return fmt.Errorf("the program with mutations does not compile:\n%s", strings.Join(messages, "\n"))
		}
	}
	return errors.New("the program with mutations does not compile")
}

// mark marks the sites on the line of a compiler's message.
func (t *subject) mark(message string) (marked int) {
	m := inFile.FindStringSubmatch(message)
	if m == nil {
		return 0
	}
	line, _ := strconv.Atoi(m[2])
	for _, s := range t.list {
		same := strings.HasSuffix(m[1], s.file) || filepath.Base(m[1]) == strings.ReplaceAll(s.file, "/", "_")
		if same && s.line == line && !s.invalid {
			s.invalid = true
			marked++
		}
	}
	return marked
}

// try returns the verdict of each mutation. The tests of the mutated package run first. For survivors,
// tests of packages that import it follow, while there is time. Strict mutations must be caught by the
// package's own tests.
func (t *trial) try() ([]string, error) {
	verdicts := make([]string, len(t.list))
	for i := range verdicts {
		verdicts[i] = untried
	}
	names, of := t.byPackage()
	subjects := map[string]*subject{}
	for _, pkg := range names {
		if time.Now().After(t.end) {
			break
		}
		began := time.Now()
		s := &subject{trial: t, pkg: pkg, dir: filepath.Join(t.dir, strings.ReplaceAll(strings.Trim(pkg, "./"), "/", "_")), built: map[string]func() (*binary, error){}}
		if err := errors.Join(os.Mkdir(s.dir, 0o700), s.compile()); err != nil {
			return nil, err
		}
		subjects[pkg] = s
		own, err := s.binary(pkg)
		if err != nil {
			return nil, err
		}
		each(of[pkg], time.Until(t.end), func(_ int, i int) { verdicts[i] = s.verdict(own, i) })
		for _, i := range of[pkg] {
			fmt.Printf("%-9s %s\n", verdicts[i], t.list[i])
		}
		fmt.Printf("%s: %.0f s\n", pkg, time.Since(began).Seconds())
	}
	var alive []int
	for i, v := range verdicts {
		if !t.list[i].strict() && (v == survived || v == unreached) {
			alive = append(alive, i)
		}
	}
	each(alive, time.Until(t.end), func(_ int, i int) {
		s := subjects[t.list[i].pkg()]
		for _, pkg := range t.importers[s.pkg] {
			if verdicts[i] == noticed || time.Now().After(t.end) {
				return
			}
			b, err := s.binary(pkg)
			if err != nil {
				fmt.Fprintln(os.Stderr, err) // the importer is left out
				continue
			}
			if v := s.verdict(b, i); v == noticed || v == survived {
				verdicts[i] = v
			}
		}
	})
	return verdicts, nil
}

// verdict runs the tests of a binary that reach a mutation.
func (t *subject) verdict(b *binary, i int) string {
	switch {
	case t.list[i].invalid:
		return invalid
	case b == nil:
		return unreached
	}
	reached, caught := b.catches(i)
	if reached && !caught {
		_, caught = b.catches(i) // a test whose outcome varies
	}
	switch {
	case caught:
		return noticed
	case len(b.broken)+b.skipped > 0: // one of these tests may catch it
		return untried
	case reached:
		return survived
	}
	return unreached
}

// binary builds the tests of a package once.
func (t *subject) binary(pkg string) (*binary, error) {
	t.mu.Lock()
	once := t.built[pkg]
	if once == nil {
		once = sync.OnceValues(func() (*binary, error) {
			b, err := build(pkg, t.dir, t.list, t.tests, t.limit/4)
			if b != nil && len(b.broken) > 0 {
				fmt.Printf("%s: left out %s, which fail without a mutation here\n", pkg, strings.Join(b.broken, ", "))
			}
			return b, err
		})
		t.built[pkg] = once
	}
	t.mu.Unlock()
	return once()
}

// unhelpful are parts of the paths of importers whose tests are not run: end-to-end tests, the laboratory and
// commands. They take minutes, or build the program without the mutation.
var unhelpful = []string{"/internal/e2e", "/internal/lab", "/internal/commands", "/internal/server", "/internal/pools", "/internal/docs", "/internal/testkit", "/internal/arch", "/cmd/"}

// importersOf maps each package to at most three packages whose code or tests import it, the ones with the fewest dependencies first, as patterns of go test. Unhelpful packages are left out.
func importersOf() (map[string][]string, error) {
	out, err := exec.Command("go", "list", "-f", `{{.Dir}} {{len .Deps}} {{len .TestGoFiles}} {{len .XTestGoFiles}} {{join .Imports ","}},{{join .TestImports ","}},{{join .XTestImports ","}} {{.Module.Path}} {{.Module.Dir}}`, "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	type importer struct {
		pkg  string
		deps int
	}
	found := map[string][]importer{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 7 || f[2] == "0" && f[3] == "0" || slices.ContainsFunc(unhelpful, func(p string) bool { return strings.Contains(f[0], p) }) {
			continue
		}
		var deps int
		_, _ = fmt.Sscan(f[1], &deps)
		from := importer{"." + strings.TrimPrefix(f[0], f[6]), deps}
		for _, to := range strings.Split(f[4], ",") {
			inside, ok := strings.CutPrefix(to, f[5]+"/")
			if inside = "./" + inside; ok && inside != from.pkg && !slices.Contains(found[inside], from) {
				found[inside] = append(found[inside], from)
			}
		}
	}
	all := map[string][]string{}
	for pkg, list := range found {
		slices.SortFunc(list, func(a, b importer) int {
			return cmp.Or(cmp.Compare(a.deps, b.deps), strings.Compare(a.pkg, b.pkg))
		})
		for _, i := range list[:min(len(list), 3)] {
			all[pkg] = append(all[pkg], i.pkg)
		}
	}
	return all, nil
}
