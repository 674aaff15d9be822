package jinja

import (
	"errors"
	"testing"
)

// left are templates with what is left to a complete engine.
var left = []string{
	"{{ l|sum }}", "{{ nest|sum(start=[]) }}", "{{ l|min }}", "{{ l|max }}", "{{ el|max }}", "{{ f|round }}", "{{ 2.567|round(2) }}", "{{ 3.5|round|int }}", "{{ 2.5|round }}", "{{ n|round }}",
	"{{ 2.1|round(0,'ceil') }}", "{{ 2.9|round(method='floor') }}", "{{ html|escape }}", "{{ html|e }}", "{{ d|attr('b') }}", "{{ n is divisibleby 5 }}",
	"{{ n is divisibleby(2) }}", "{{ 'a' is lower }}", "{{ 'A' is upper }}", "{{ '1' is lower }}", "{{ s is sameas s }}", "{{ t is sameas true }}", "{{ 1 is sameas true }}",
	"{{ s.partition(' ') }}", "{{ s.partition('zz') }}", "{{ s.rpartition('zz') }}", "{{ path.rpartition('/') }}", "{{ '12'.isdigit() }}",
	"{{ ''.isdigit() }}", "{{ 'ab'.isalpha() }}", "{{ ' '.isspace() }}", "{{ 'a1'.isalnum() }}", "{{ '7'.zfill(3) }}", "{{ '-7'.zfill(4) }}", "{{ '{} {}'.format('a',1) }}",
	"{{ '{0}{1}{0}'.format('a','b') }}", "{{ '{x}'.format(x=3) }}", "{{ '{{}}'.format() }}", "{{ 'AB'.isupper() }}", "{{ 'ab'.islower() }}",
	"{{ ls | map('escape') | list }}", "{{ l | select('divisibleby', 2) | list }}", "{{ msgs | selectattr('content', 'upper') | list }}", "{% for x in l recursive %}{% endfor %}",
	"{% include 'x' %}", "{% macro m(*a) %}{% endmacro %}", "{{ m(*l) }}", "{{ cycler(1, 2).next() }}", "{{ joiner() }}", "{% for x in ls %}{{ loop.cycle('a','b') }}{% endfor %}",
	"{% for x in [1,1,2] %}{{ loop.changed(x) }}{% endfor %}",
	"{% with a = 1, b = n %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a is defined }}{{ c is defined }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}",
	"{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter trim | replace('a','b') %}  a a {% endfilter %}",
}

// TestLeft checks that a template which another engine must render is refused
// when it is parsed, not in the midst of a rendering.
func TestLeft(t *testing.T) {
	for _, src := range left {
		if _, err := Parse(src); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", src, err)
		}
	}
}
