package syntax

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

func TestUses(t *testing.T) {
	tree, err := Parse("{{ a | trim | join(',') }}\n{{ b.get('x').strip() | trim is defined }}{{ c | map('upper') | select('odd') | selectattr('k', 'in', d) }}")
	if err != nil {
		t.Fatal(err)
	}
	want := [][]Use{
		{{"trim", 1}, {"join", 1}, {"map", 2}, {"upper", 2}, {"select", 2}, {"selectattr", 2}},
		{{"defined", 2}, {"odd", 2}, {"in", 2}},
		{{"get", 2}, {"strip", 2}},
	}
	if diff := cmp.Diff(want, [][]Use{tree.Filters, tree.Tests, tree.Methods}); diff != "" {
		t.Errorf("filters, tests, methods (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "d"}, tree.Names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if !tree.Mentions("odd") || tree.Mentions("trim") {
		t.Error("string constants are not what the template mentions")
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"a\n{{ 1 + }}", "line 2: an expression expected, found the end of the tag"},
		{"{% if x %}\n\n", "line 2: [elif else endif] expected, found the end"},
		{"{% nosuch %}", `line 1: unknown statement "nosuch"`},
		{"{{ 'a }}", "line 1: string without an end"},
		{"{% break %}", "line 1: break outside of a loop"},
		{"{% do x %}", `line 1: unknown statement "do"`},
	} {
		if _, err := Parse(c.src); err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrUnsupported) {
			t.Errorf("%q: %v, want %s", c.src, err, c.want)
		}
	}
	for _, src := range []string{strings.Repeat("x", maxSource+1), "{{ " + strings.Repeat("(", maxDepth+1) + strings.Repeat(")", maxDepth+1) + " }}", strings.Repeat("{% if x %}", maxDepth+1)} {
		if _, err := Parse(src); !errors.Is(err, value.ErrBounds) {
			t.Errorf("%.20q: %v", src, err)
		}
	}
}

func TestIteratesContent(t *testing.T) {
	const all = 1<<RuleLoops | 1<<RuleMacros | 1<<RuleNamespaces | 1<<RuleNames
	const vllm = all &^ (1 << RuleNames)
	for src, want := range map[string]int{
		"{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}":                              all,
		"{% for x in messages %}{% for p in x.content %}{% endfor %}{% endfor %}":                              vllm,
		"{% set l = messages[1:] %}{% for m in l %}{% for p in m['content'] | list %}{% endfor %}{% endfor %}": all,
		"{% for p in content %}{% endfor %}":                                                                   vllm,
		"{% for m in messages %}{{ m.content }}{% endfor %}":                                                   0,
		"{% for m in others %}{% for p in m.content %}{% endfor %}{% endfor %}":                                1 << RuleNames,
		// Macros.
		"{% macro r(c) %}{% for p in c %}{% endfor %}{% endmacro %}{% for m in messages %}{{ r(m.content) }}{% endfor %}":             1<<RuleMacros | 1<<RuleNamespaces,
		"{% macro r(a, c) %}{% for p in c %}{% endfor %}{% endmacro %}{% for m in messages %}{{ r(1, c=m['content']) }}{% endfor %}":  1<<RuleMacros | 1<<RuleNamespaces,
		"{% macro r(c) %}{% for p in c %}{% endfor %}{% endmacro %}{% for m in messages %}{{ r(m.role) }}{% endfor %}":                0,
		"{% macro r(content) %}{% for p in content %}{% endfor %}{% endmacro %}{% for m in messages %}{{ r(m.other) }}{% endfor %}":   1 << RuleLoops,
		"{% macro r(content) %}{% for p in content %}{% endfor %}{% endmacro %}{% for m in messages %}{{ r(m.content) }}{% endfor %}": vllm,
		"{% macro r(c) %}{% endmacro %}{% for p in c %}{% endfor %}{% for m in messages %}{{ r(m.content) }}{% endfor %}":             0,
		// Namespaces.
		"{% set n = namespace(rest=messages) %}{% for x in n.rest %}{% for p in x.content %}{% endfor %}{% endfor %}":                            1 << RuleNamespaces,
		"{% set n = namespace(rest=none) %}{% set n.rest = messages[1:] %}{% for x in n.rest %}{% for p in x.content %}{% endfor %}{% endfor %}": 1 << RuleNamespaces,
		"{% set n = namespace(rest=none) %}{% set n.rest = others %}{% for x in n.rest %}{% for p in x.content %}{% endfor %}{% endfor %}":       0,
	} {
		tree, err := Parse(src)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for r := range numRules {
			if tree.IteratesContent(r) {
				got |= 1 << r
			}
		}
		if got != want {
			t.Errorf("%s: rules %04b, want %04b", src, got, want)
		}
	}
}
