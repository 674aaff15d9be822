package main

import (
	"os"
	"strings"
	"testing"
)

// TestList checks that the list contains exactly the tests that pass inputs to testkit.Linear, and
// that the documentation on tests has the same list.
func TestList(t *testing.T) {
	text, err := os.ReadFile("list.txt")
	if err != nil {
		t.Fatal(err)
	}
	laws, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range laws {
		found := false
		files, err := os.ReadDir("../../../" + l.pkg)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !strings.HasSuffix(f.Name(), "_test.go") {
				continue
			}
			source, err := os.ReadFile("../../../" + l.pkg + "/" + f.Name())
			if err != nil {
				t.Fatal(err)
			}
			_, body, ok := strings.Cut(string(source), "\nfunc "+l.test+"(")
			found = found || ok && strings.Contains(body, "testkit.Linear(")
		}
		if !found {
			t.Errorf("%s %s hands no input to testkit.Linear", l.pkg, l.test)
		}
		if row := "| `" + l.pkg + "` | `" + l.test + "` | " + l.text + " |"; !strings.Contains(string(page), row) {
			t.Errorf("docs/testing.md has no row %s", row)
		}
	}
}

// TestParse reads lists, good and bad.
func TestParse(t *testing.T) {
	laws, err := parse("# a comment\n\na/b TestX 12.5\n")
	if err != nil || len(laws) != 1 || laws[0] != (law{"a/b", "TestX", 12.5, "12.5"}) {
		t.Errorf("%+v, %v", laws, err)
	}
	for _, bad := range []string{"a/b TestX\n", "a/b TestX many\n", "a b c d\n"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

// TestCount sums up a profile.
func TestCount(t *testing.T) {
	n, err := count([]byte("mode: count\na/b.go:1.2,3.4 2 10\na/b.go:5.2,6.4 3 0\na/c.go:1.1,2.2 1 7\n"))
	if err != nil || n != 27 {
		t.Errorf("%v, %v", n, err)
	}
	if _, err := count([]byte("a/b.go:1.2,3.4 x 10\n")); err == nil {
		t.Error("what is no number is counted")
	}
}
