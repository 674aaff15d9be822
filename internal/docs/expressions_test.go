package docs

import (
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/explain"
	"github.com/grapevine-epp/grapevine/picker/plugins/expression"
	"github.com/grapevine-epp/grapevine/picker/request"
)

type tierHeader string

// Get implements request.Headers.
func (h tierHeader) Get(name string) string {
	if name == "x-tier" {
		return string(h)
	}
	return ""
}

// TestExpressionGuide makes the decisions that the page about expressions describes, with its file.
func TestExpressionGuide(t *testing.T) {
	const example = root + "/docs/examples/expressions/"
	page := read(t, root+"/docs/tasks/expressions.md")
	file := read(t, example+"epp.yaml")
	if indented := strings.ReplaceAll(strings.TrimSpace(file), "\n", "\n   "); !strings.Contains(page, indented) {
		t.Errorf("the page does not show %sepp.yaml", example)
	}
	loads(t, "epp.yaml", file)
	o := explain.Offline{Config: example + "epp.yaml", Fleet: example + "fleet.json", Tokens: 6000, Seed: 1, Now: time.Unix(1_800_000_000, 0)}
	for tier, want := range map[tierHeader]string{"gold": "10.0.0.2:8000", "": "10.0.0.3:8000"} {
		d, err := o.Decide(&request.Request{ID: "guide", Path: "/v1/chat/completions", Headers: tier})
		if err != nil {
			t.Fatal(err)
		}
		if d.Choice != want {
			t.Errorf("tier %q: chosen %s, want %s", tier, d.Choice, want)
		}
		if address, _, _ := strings.Cut(want, ":"); !strings.Contains(page, address) {
			t.Errorf("the page does not name %s", address)
		}
	}
}

// TestNamesOfFacts: the pages about expressions and about WebAssembly plugins list every name.
func TestNamesOfFacts(t *testing.T) {
	for _, path := range []string{"/docs/tasks/expressions.md", "/docs/wasm.md"} {
		page := read(t, root+path)
		for _, name := range expression.Names() {
			if !strings.Contains(page, "`"+name+"`") && !strings.Contains(page, "`"+name+`["NAME"]`) {
				t.Errorf("%s does not list %s", path, name)
			}
		}
	}
}
