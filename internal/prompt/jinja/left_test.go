package jinja

import (
	"errors"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// more are templates with rarely used features. Both Python and this package render them.
var more = []string{
	"{{ l|sum }}", "{{ nest|sum(start=[]) }}", "{{ one|sum('k') }}", "{{ l|min }}", "{{ l|max }}", "{{ ls|max }}", "{{ el|max }}", "{{ el|min is defined }}", "{{ f|round }}", "{{ 2.567|round(2) }}", "{{ 3.5|round|int }}",
	"{{ 2.5|round }}", "{{ n|round }}", "{{ 2.675|round(2) }}", "{{ -0.5|round }}",
	"{{ 2.1|round(0,'ceil') }}", "{{ 2.9|round(method='floor') }}", "{{ d|attr('b') is defined }}", "{{ n is divisibleby 5 }}", "{{ n|center(9) }}|{{ 'ab'|center(5) }}|{{ 'ab'|center(7) }}|",
	"{{ n is divisibleby(2) }}", "{{ 'a' is lower }}", "{{ 'A' is upper }}", "{{ '1' is lower }}", "{{ s is sameas s }}", "{{ t is sameas true }}", "{{ 1 is sameas true }}", "{{ no is sameas none }}", "{{ fa is sameas(false) }}",
	"{{ s.partition(' ') }}", "{{ s.partition('zz') }}", "{{ s.rpartition('zz') }}", "{{ path.rpartition('/') }}", "{{ '12'.isdigit() }}", "{{ 's'.partition('') }}",
	"{{ ''.isdigit() }}", "{{ 'ab'.isalpha() }}", "{{ ' '.isspace() }}", "{{ 'a1'.isalnum() }}", "{{ '7'.zfill(3) }}", "{{ '-7'.zfill(4) }}", "{{ '{} {}'.format('a',1) }}", "{{ '²'.isdigit() }}{{ '²'.isdecimal() }}{{ '½'.isnumeric() }}",
	"{{ '{0}{1}{0}'.format('a','b') }}", "{{ '{x}'.format(x=3) }}", "{{ '{{}}'.format() }}", "{{ '{}'.format() }}", "{{ '}'.format() }}", "{{ 'AB'.isupper() }}", "{{ 'ab'.islower() }}", "{{ 'A1'.isupper() }}{{ '1'.isupper() }}{{ 'Ab'.isupper() }}",
	"{{ 'ab'.center(5) }}|{{ 'ab'.center(6,'*') }}|{{ 'abc'.center(6) }}|{{ 'abc'.center(8,'-') }}|{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3,'0') }}|", "{{ 'aB'.swapcase() }}{{ 'AB'.casefold() }}",
	"{{ l | select('divisibleby', 2) | list }}", "{{ msgs | selectattr('content', 'upper') | list }}", "{{ none|selectattr('a')|list }}", "{{ no|map(attribute='a')|list }}", "{{ no|select|list }}", "{{ no|list }}", "{{ no|join(',') }}",
	"{% for x in l recursive %}{{ x }}{{ loop.depth }}{% endfor %}", "{% for x in [[1,[2,3]],[4]] recursive %}{% if x is sequence %}<{{ loop(x) }}>{% else %}{{ x }}@{{ loop.depth0 }}{% endif %}{% endfor %}", "{% for x in l %}{{ loop(l) }}{% endfor %}",
	"{% for x in ls %}{{ loop.cycle('a','b') }}{% endfor %}", "{% for x in [1,1,2] %}{{ loop.changed(x) }}{% endfor %}", "{% for x in l %}{{ loop.cycle() }}{% endfor %}",
	"{% with a = 1, b = n %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a is defined }}{{ c is defined }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}", "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
	"{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter trim | replace('a','b') %}  a a {% endfilter %}", "{% filter upper %}{% set q = 1 %}x{% endfilter %}{{ q is defined }}",
	// Features used by tool calls of published models: the order of keys, big integers.
	"{% for k, v in d.items() %}{{ k }}={{ v|tojson }};{% endfor %}{{ big }}{{ big|tojson }}{{ {'z': big, 'a': 1}|tojson }}{{ {'z': big, 'a': 1} }}",
}

// TestMore compares renderings of rarely used features with Python's.
func TestMore(t *testing.T) {
	ref := newReference(t)
	for _, src := range more {
		compareWith(t, ref, src, exprVars)
	}
}

// left are templates with unsupported features in a branch that runs only if x is set. Jinja
// rejects some at parse time.
var left = []string{
	"{{ html|striptags }}", "{{ html|truncate(3) }}", "{{ (html|safe).unescape() }}", "{{ (html|safe).striptags() }}", "{{ '%r'|safe % html }}", "{{ m(*l) }}", "{{ m(**d) }}", "{{ cycler(1, 2).next() }}", "{{ joiner() }}",
	"{{ s.encode('utf-8') }}", "{{ l|groupby('a') }}", "{{ s is filter }}", "{{ s|fromjson }}",
}

// TestUnsupportedFailsWhenReached checks that an unsupported feature fails at run time rather than
// at parse time, so that templates with other, supported branches stay usable.
func TestUnsupportedFailsWhenReached(t *testing.T) {
	vars := func(x bool) []Var {
		return []Var{{"x", value.Bool(x)}, {"s", value.String("a")}, {"html", value.String("<")}, {"ls", value.List([]value.Value{value.String("a")})}, {"l", value.List(nil)}}
	}
	for _, src := range left {
		tmpl, err := Parse("{% macro m() %}{% endmacro %}{% if x %}" + src + "{% endif %}ok")
		if err != nil {
			t.Errorf("%s: Parse() = %v", src, err)
			continue
		}
		if out, err := tmpl.Render(t.Context(), nil, vars(false), Options{}); err != nil || string(out) != "ok" {
			t.Errorf("%s, not reached: %q, %v, want ok", src, out, err)
		}
		if out, err := tmpl.Render(t.Context(), nil, vars(true), Options{}); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s, reached: %q, %v, want ErrUnsupported", src, out, err)
		}
	}
}

// Statements that this package does not have are refused when they are parsed.
func TestUnsupportedStatements(t *testing.T) {
	for _, src := range []string{"{% include 'x' %}", "{% macro m(*a) %}{% endmacro %}", "{% extends 'x' %}", "{% block x %}{% endblock %}"} {
		if _, err := Parse(src); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", src, err)
		}
	}
}
