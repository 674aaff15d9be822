package tracing_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/grapevine-epp/grapevine/internal/tracing"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of the documentation anew")

const (
	page     = "../../docs/traces.md"
	pageFrom = "<!-- spans: written by go test ./internal/tracing -rewrite -->\n"
	pageTo   = "<!-- spans: end -->"
)

// TestPage compares the page of spans with the table.
func TestPage(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n## Spans\n\n| span | kind | parent | what it covers |\n|---|---|---|---|\n")
	for _, s := range tracing.Spans {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.Name, s.Kind, quoted(s.Parent), s.Meaning)
	}
	b.WriteString("\n## Attributes\n\n| attribute | spans | meaning |\n|---|---|---|\n")
	for _, key := range keys() {
		var spans []string
		for _, s := range tracing.Spans {
			if slices.Contains(s.Attributes, key) {
				spans = append(spans, strings.TrimPrefix(s.Name, "grapevine."))
			}
		}
		if len(spans) > 0 {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", key, strings.Join(spans, ", "), meaning(t, key))
		}
	}
	b.WriteString("\n## Events\n")
	seen := map[string]bool{}
	for _, s := range tracing.Spans {
		for _, e := range s.Events {
			if seen[e.Name] {
				continue
			}
			seen[e.Name] = true
			fmt.Fprintf(&b, "\n`%s`: %s.\n", e.Name, e.Meaning)
			if len(e.Attributes) == 0 {
				continue
			}
			b.WriteString("\n| attribute | meaning |\n|---|---|\n")
			for _, key := range e.Attributes {
				switch suffix, of := strings.CutPrefix(string(key), string(tracing.Chosen)+"."); {
				case of:
					fmt.Fprintf(&b, "| `%s`, `%s` | %s |\n", key, tracing.Second.Key(suffix), meaning(t, attribute.Key(suffix)))
				case !strings.HasPrefix(string(key), string(tracing.Second)):
					fmt.Fprintf(&b, "| `%s` | %s |\n", key, meaning(t, key))
				}
			}
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), pageFrom)
	_, after, closed := strings.Cut(rest, pageTo)
	if !found || !closed {
		t.Fatalf("%s has no marks around its tables", page)
	}
	want := before + pageFrom + b.String() + "\n" + pageTo + after
	if *rewrite {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s is not that of the table: go test ./internal/tracing -rewrite", page)
	}
}

func quoted(name string) string {
	if strings.HasPrefix(name, "grapevine.") {
		return "`" + name + "`"
	}
	return name
}

func meaning(t *testing.T, key attribute.Key) string {
	t.Helper()
	if tracing.Meanings[key] == "" {
		t.Errorf("%s is not explained", key)
	}
	return tracing.Meanings[key]
}

// keys returns the attributes of all spans in the order of the alphabet.
func keys() (list []attribute.Key) {
	for _, s := range tracing.Spans {
		list = append(list, s.Attributes...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// TestTableIsComplete checks that the table has every name that the package declares.
func TestTableIsComplete(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{string(tracing.Chosen): true, string(tracing.Second): true}
	for _, s := range tracing.Spans {
		known[s.Name] = true
		for _, key := range s.Attributes {
			known[string(key)] = true
		}
		for _, e := range s.Events {
			known[e.Name] = true
			for _, key := range e.Attributes {
				known[string(key)] = true
				if suffix, of := strings.CutPrefix(string(key), string(tracing.Chosen)+"."); of {
					known[suffix] = true
				}
			}
		}
	}
	names := 0
	ast.Inspect(f, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			name, _ := strconv.Unquote(l.Value)
			if strings.Contains(name, "/") || name == "." {
				return true
			}
			if names++; !known[name] {
				t.Errorf("the table of spans does not have %s", name)
			}
		}
		return true
	})
	if names < 50 {
		t.Errorf("%d names were found, want those of names.go", names)
	}
}
