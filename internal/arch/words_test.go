package arch

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	// mixedCase matches words that only identifiers are written like, such as MaxBody and maxBody.
	mixedCase = regexp.MustCompile(`\b(?:[A-Z][a-z0-9]+|[a-z]{2,})(?:[A-Z][a-z0-9]+)+\b`)
	// docLink matches links of doc comments to a name of the same package.
	docLink = regexp.MustCompile(`\[\*?([A-Z]\w*)(?:\.([A-Z]\w*))?\]`)
)

// properNames are names of products, protocols and foreign types that comments mention and no code uses.
var properNames = strings.Fields(`DONE DefaultTransport MooncakeConnector SentencePiece SplitMix64 TextMarshaler`)

// TestCommentsNameIdentifiers checks that mixed-case words and doc links in comments are identifiers or
// words of string literals in this module's code, or plurals of them.
func TestCommentsNameIdentifiers(t *testing.T) {
	tree, err := Load(os.DirFS("../.."), module)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, name := range properNames {
		known[name] = true
	}
	for _, f := range tree.files {
		if f.ast == nil {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				known[n.Name] = true
			case *ast.BasicLit:
				if n.Kind != token.STRING {
					return true
				}
				if text, err := strconv.Unquote(n.Value); err == nil {
					for _, word := range mixedCase.FindAllString(text, -1) {
						known[word] = true
					}
				}
			}
			return true
		})
	}
	for _, f := range tree.files {
		if f.ast == nil || f.generated {
			continue
		}
		for _, g := range f.ast.Comments {
			for _, c := range g.List {
				names := mixedCase.FindAllString(c.Text, -1)
				for _, m := range docLink.FindAllStringSubmatch(c.Text, -1) {
					names = append(names, m[1:]...)
				}
				for _, name := range names {
					if name != "" && !known[name] && !known[strings.TrimSuffix(name, "s")] {
						t.Errorf("%s:%d: names %s, which does not exist", f.path, tree.fset.Position(c.Pos()).Line, name)
					}
				}
			}
		}
	}
}
