package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// selected matches the selectors of Go code.
var selected = regexp.MustCompile(`\.([A-Za-z]\w*)`)

// used reports whether a file of a folder has a word.
func used(t *testing.T, dir, word string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	whole := regexp.MustCompile(`\b` + word + `\b`)
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if whole.Match(text) {
			return true
		}
	}
	return false
}

// Every change of the list is still possible: its text occurs once in its file, and its new text selects
// fields and methods that the package uses.
func TestListFitsTheProgram(t *testing.T) {
	text, err := os.ReadFile("list.txt")
	if err != nil {
		t.Fatal(err)
	}
	all, err := parse(string(text))
	if err != nil || len(all) < 40 {
		t.Fatalf("%d changes, %v", len(all), err)
	}
	names := map[string]bool{}
	for _, m := range all {
		source, err := os.ReadFile("../../../" + m.file)
		if err != nil {
			t.Error(err)
			continue
		}
		if n := strings.Count(string(source), m.old); n != 1 {
			t.Errorf("%s: %s has %q %d times", m.name, m.file, m.old, n)
		}
		if m.old == m.new || names[m.name] || len(m.tests) == 0 {
			t.Errorf("%+v", m)
		}
		for _, word := range selected.FindAllStringSubmatch(m.new, -1) {
			if !strings.Contains(m.old, word[1]) && !used(t, filepath.Dir("../../../"+m.file), word[1]) {
				t.Errorf("%s: the new text has .%s, which its package does not use", m.name, word[1])
			}
		}
		names[m.name] = true
	}
}

// program prints one line per function.
const program = `package main

import "fmt"

type a struct{ Load, Name int }

func copied(b a) (c a) {
	c.Load = b.Load
	return c
}

func twice(b a) (c a) {
	c.Load, c.Name = b.Load, b.Name
	return c
}

func literal(b a) a { return a{Load: b.Load, Name: b.Name} }

func both(x, y int) bool { return x > 1 && y < 3 }

func either(x, y int) bool { return x == 1 || y != 3 }

func low(x int) bool { return x <= 2 }

func high(x int) bool { return x >= 2 }

func sum(x int) int { return x + 5 }

func rest(x int) int { return x - 2 }

func branch(x bool) bool {
	if x {
		return true
	}
	return false
}

func main() {
	fmt.Println("copied", copied(a{1, 2}))
	fmt.Println("twice", twice(a{1, 2}))
	fmt.Println("literal", literal(a{1, 2}))
	fmt.Println("both", both(1, 2), both(1, 3), both(2, 2), both(2, 3))
	fmt.Println("either", either(1, 2), either(1, 3), either(2, 2), either(2, 3))
	fmt.Println("low", low(1), low(2), low(3))
	fmt.Println("high", high(1), high(2), high(3))
	fmt.Println("sum", sum(1))
	fmt.Println("rest", rest(1))
	fmt.Println("branch", branch(true), branch(false))
}
`

// TestMutationsOfAFile compiles a program with all its mutations, and runs it with each.
func TestMutationsOfAFile(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"x.go": program, "go.mod": "module x\n\ngo 1.26\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := sites("x.go")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := overlay(".", "./.", list); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", "overlay.json", "-o", "x").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(n int) []string {
		cmd := exec.Command("./x")
		cmd.Env = append(os.Environ(), envActive+"="+strconv.Itoa(n))
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(out)), "\n")
	}
	got := []string{"no mutation: " + strings.Join(run(-1), ", ")}
	unchanged := run(-1)
	for i, s := range list {
		lines := slices.DeleteFunc(run(i), func(l string) bool { return slices.Contains(unchanged, l) })
		got = append(got, s.kind+": "+strings.Join(lines, ", "))
	}
	want := []string{
		"no mutation: copied {1 0}, twice {1 2}, literal {1 2}, both false false true false, either true true true false, low true true false, high false true true, sum 6, rest -1, branch true false",
		"drop a copied field: copied {0 0}",
		"drop a copied field: twice {0 2}",
		"drop a copied field: twice {1 0}",
		"drop a copied field: literal {0 2}",
		"drop a copied field: literal {1 0}",
		"&& becomes ||: both true false true true",
		"> becomes >=: both true false true false",
		"< becomes <=: both false false true true",
		"|| becomes &&: either true false false false",
		"== becomes !=: either true false true true",
		"!= becomes ==: either true true false true",
		"<= becomes <: low true false false",
		">= becomes >: high false false true",
		"+ becomes -: sum -4",
		"- becomes +: rest 3",
		"a condition is never true: branch false false",
		"return true becomes its opposite: branch false false",
		"return false becomes its opposite: branch true true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("output with each mutation (-want +got):\n%s", diff)
	}
}

// TestEquivalentMutationsExist checks that each listed equivalent mutation is still possible.
func TestEquivalentMutationsExist(t *testing.T) {
	t.Chdir("../../..")
	listed, err := readEquivalent(defaultEquivalent)
	if err != nil {
		t.Fatal(err)
	}
	all, err := sample(1<<30, selection{seed: ""})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		delete(listed, s.key())
	}
	for key := range listed {
		t.Errorf("the program has no such mutation:\n%s", key)
	}
}

// TestSampleCoversTrustAndCopies checks that the seed determines the sample, that a quarter of the
// sample is in trust, budget and admission code, and that a quarter drops copied fields.
func TestSampleCoversTrustAndCopies(t *testing.T) {
	t.Chdir("../../..")
	one, err := sample(40, selection{seed: "one"})
	if err != nil {
		t.Fatal(err)
	}
	again, _ := sample(40, selection{seed: "one"})
	other, _ := sample(40, selection{seed: "other"})
	some, err := sample(5, selection{seed: "one", only: "picker/*.go"})
	if err != nil || len(some) != 5 || slices.ContainsFunc(some, func(s *site) bool { return filepath.Dir(s.file) != "picker" }) {
		t.Errorf("sample(picker/*.go) = %v, %v, want five sites in package picker", some, err)
	}
	copied, err := sample(1<<30, selection{kind: "copied"})
	if err != nil || len(copied) < 100 || slices.ContainsFunc(copied, func(s *site) bool { return s.kind != kindCopy }) {
		t.Errorf("sample of copies has %d sites, %v, want only copies", len(copied), err)
	}
	if _, err := sample(5, selection{seed: "one", only: "["}); err == nil {
		t.Error("sample() accepts a pattern that is not one")
	}
	names := func(list []*site) (all []string) {
		for _, s := range list {
			all = append(all, s.String())
		}
		return all
	}
	if !slices.Equal(names(one), names(again)) || slices.Equal(names(one), names(other)) {
		t.Error("sample() differs for one seed, or is equal for two")
	}
	guards, copies := 0, 0
	for _, s := range one {
		if s.critical() {
			guards++
		}
		if s.kind == kindCopy {
			copies++
		}
	}
	if len(one) != 40 || guards < 10 || copies < 10 {
		t.Errorf("sample() = %d sites, %d of critical code and %d copies, want 40, at least 10 and 10", len(one), guards, copies)
	}
}

// TestLeastCaught checks that small samples are allowed more chance than large ones.
func TestLeastCaught(t *testing.T) {
	for _, c := range []struct {
		n    int
		want int
	}{{1, 0}, {4, 2}, {16, 9}, {40, 25}, {400, 283}} {
		if got := leastCaught(c.n, 0.75); got != c.want {
			t.Errorf("leastCaught(%d, 0.75) = %d, want %d", c.n, got, c.want)
		}
	}
}
