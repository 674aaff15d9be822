package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// TestSitesOfAFile checks each kind of random mutation on a small file.
func TestSitesOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.go")
	const text = `package x

type a struct{ Load, Name int }

func f(b, c *a) bool {
	c.Load = b.Load
	d := a{Load: b.Load, Name: b.Name}
	if d.Load > 1 && c.Name == 2 {
		return true
	}
	return d.Name+1 < 3
}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := sites(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range found {
		mutated := strings.Split(string(s.apply()), "\n")[s.line-1]
		got = append(got, s.kind+": "+strings.TrimSpace(mutated))
	}
	want := []string{
		"drop a copied field: _ = b.Load",
		"drop a copied field: d := a{ Name: b.Name}",
		"drop a copied field: d := a{Load: b.Load, }",
		"a condition is never true: if false && (d.Load > 1 && c.Name == 2) {",
		"&& becomes ||: if d.Load > 1 || c.Name == 2 {",
		"> becomes >=: if d.Load >= 1 && c.Name == 2 {",
		"== becomes !=: if d.Load > 1 && c.Name != 2 {",
		"return true becomes its opposite: return false",
		"< becomes <=: return d.Name+1 <= 3",
		"+ becomes -: return d.Name-1 < 3",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sites (-want +got):\n%s", diff)
	}
}

// TestSampleCoversTrustAndCopies checks that the seed determines the sample, that a quarter of the
// sample is in trust, budget and admission code, and that a quarter drops copied fields.
func TestSampleCoversTrustAndCopies(t *testing.T) {
	t.Chdir("../../..")
	one, err := sample(40, "one", "")
	if err != nil {
		t.Fatal(err)
	}
	again, _ := sample(40, "one", "")
	other, _ := sample(40, "other", "")
	some, err := sample(5, "one", "picker/*.go")
	if err != nil || len(some) != 5 || slices.ContainsFunc(some, func(s *site) bool { return filepath.Dir(s.file) != "picker" }) {
		t.Errorf("sample(picker/*.go) = %v, %v, want five sites in package picker", some, err)
	}
	if _, err := sample(5, "one", "["); err == nil {
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
		if slices.ContainsFunc(critical, func(p string) bool { return strings.HasPrefix(s.file, p) }) {
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
