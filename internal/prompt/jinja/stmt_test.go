package jinja

import "testing"

// templates are rendered by Python and by this package.
var templates = []string{
	// white space control
	"a\n{% if t %}\nb\n{% endif %}\nc\n", "a\n  {% if t %}  \n b {% endif %} \nc\n\n", "  {%- if t -%}  x  {%- endif -%}  y", "x {{- s -}} \n y", "x {{ s }}\n y", "{{ s -}}\n\n  {% if t %}\nq{% endif %}", "a {%+ if t %} b {%+ endif %} c", "  {%+ if t +%}\nb{% endif +%}\nc",
	"a {# comment #} b", "a\n  {# comment #}\nb", "a\n{#- comment -#}\nb", "{# {{ x }} {% if %} #}z", "a\r\nb\r{% if t %}\r\nc{% endif %}\r\n", "{% raw %}{{ x }}{% if %}{% endraw %}y", "a\n  {% raw %}\n  b {{ }}\n  {% endraw %}\nc", " {%- raw -%} x {%- endraw -%} y", "{% raw %} a {%- endraw %} b", "\n\nx\n\n", "", "\n",
	"{{ '{{' }}{{ '%}' }}{{ \"}}\" }}", "{{ {'a':{'b':1}} }}", "{{ {'a':{'b':1}}}}", "{{'x'}}{{-'y'}}", "{%if t%}1{%endif%}", "{%-if t-%} 1 {%-endif-%}", "{ {{ 1 }} } {a} {", "a{", "line\n\t {% set x = 1 %}\t\nnext", "{% set x = 1 %}\n\n{{ x }}", "{{ 1 }}\n{{ 2 }}\n",
	"\u00a0\u2003{%- if t %}x{% endif -%}\u00a0\u2028y", "text  {{ s }}  \n   {% if t %}x{% endif %}   \n   {{ s }}\n",
	// if
	"{% if fa %}1{% elif n > 4 %}2{% else %}3{% endif %}", "{% if fa %}1{% elif no %}2{% else %}3{% endif %}", "{% if fa %}1{% endif %}x", "{% if t %}{% if fa %}a{% else %}b{% endif %}{% endif %}", "{% if 1 if t else 0 %}x{% endif %}", "{% if fa, t %}x{% endif %}",
	// for
	"{% for x in l %}{{ loop.index }}:{{ x }}{% if not loop.last %},{% endif %}{% endfor %}", "{% for x in el %}a{% else %}none{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for c in s %}[{{ c }}]{% endfor %}", "{% for x in undefinedthing %}a{% else %}b{% endfor %}", "{% for x in no %}a{% endfor %}", "{% for x in n %}a{% endfor %}",
	"{% for x in l if x > 1 %}{{ loop.index0 }}/{{ loop.length }}:{{ x }} {% else %}none{% endfor %}", "{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}", "{% for a, b in nest %}{{ a }}{{ b }}{% endfor %}", "{% for (a, b) in nest %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in l %}{{ a }}{% endfor %}", "{% for x in l %}{% for y in ls %}{{ loop.depth }}{{ loop.depth0 }}{{ x }}{{ y }}{% endfor %}{% endfor %}",
	"{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}", "{% for x in l %}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
	"{% for x in range(3) %}{% for y in range(3) %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}", "{% for m in msgs %}{% if loop.index0 > 0 and msgs[loop.index0 - 1].role == 'user' %}!{% endif %}{{ m.role[0] }}{% endfor %}", "{% for x in l %}{% else %}x{% endfor %}{{ loop is defined }}", "{% for x in 'ab', 'cd' %}{{ x }}-{% endfor %}", "{% for m in msgs[1:] %}{{ m.content }}{% endfor %}", "{% for m in msgs|reverse %}{{ m.content }}{% endfor %}{% for m in msgs[::-1] %}{{ m.content }}{% endfor %}",
	// scopes
	"{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}", "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}", "{% for i in l %}{% if i == 1 %}{% set q = 'q' %}{% endif %}{{ q is defined }} {% endfor %}{{ q is defined }}", "{% set ns = namespace(x=1, y='a') %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.zz is defined }}", "{% for n in l %}{{ n }}{% endfor %}{{ n }}", "{% set s.x = 1 %}", "{% set d.x = 1 %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = l %}{{ a }}", "{% set a = 1, 2 %}{{ a }}", "{% set loop = 1 %}{% for x in l %}{{ loop.index }}{% endfor %}{{ loop }}",
	"{% set x %}a {{ s }} b{% endset %}[{{ x }}]", "{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ x }}{{ y is defined }}", "{% generation %}x{% set g = 1 %}{% endgeneration %}{{ g is defined }}",
	"{% set x | upper | trim %} a {{ s }} {% endset %}[{{ x }}]",
	// macros
	"{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=9) }} {{ m(b=1, a=0) }}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(1) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(q=2) }}", "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}", "{% macro m(n) %}{% if n > 0 %}{{ n }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}", "{% macro m(x) %}{% set y = x %}{{ y }}{% endmacro %}{{ m(1) }}{{ y is defined }}", "{% macro m(x) -%}\n  {{ x }}\n{%- endmacro %}[{{ m('a') }}] {{ m('a')|upper }} {{ m('a') + 'b' }}",
	"{% macro a(x) %}<{{ b(x) }}>{% endmacro %}{% macro b(x) %}{{ x }}{% endmacro %}{{ a('q') }}", "{% macro m(x, y=x) %}{{ x }}{{ y }}{% endmacro %}{{ m(1) }}", "{{ m is defined }}{% macro m() %}{% endmacro %}{{ m is defined }}{{ m is callable }}", "{% for i in l %}{% macro q() %}{{ i }}{% endmacro %}{{ q() }}{% endfor %}", "{% if t %}{% macro m() %}in{% endmacro %}{% endif %}{{ m() }}", "{% macro m(v) %}{% for k in v %}{{ k }}{{ loop.index }}{% endfor %}{% endmacro %}{% for i in [1,2] %}{{ m(l) }}{{ loop.index }}{% endfor %}",
	"{% macro box(x) %}<{{ caller() }}{{ x }}>{% endmacro %}{% call box(1) %}in {{ s }}{% endcall %}", "{% macro each(l) %}{% for x in l %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(v) each(l) %}[{{ v }}]{% endcall %}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "{% call s %}x{% endcall %}", "{% call nosuch() %}x{% endcall %}",
	// errors
	"{% if t %}", "{% endif %}", "{% for x l %}{% endfor %}", "{{ }}", "{{ 1 + }}", "{{ (1 }}", "{% nosuch %}", "{{ 'a }}", "{% set = 1 %}", "{{ a b }}", "{# open", "{% raw %}x", "{% else %}", "{{ 1 if }}", "{{ x | }}", "{{ x is }}", "{% break %}", "{{ [1 2] }}", "{{ {'a' 1} }}", "{{ a. }}", "{{ ! }}", "{% if t %}{% else %}{% else %}{% endif %}",
	// printing of concatenations
	"{{ 'a' + s + 'b' + e }}", "{{ 1 + 2 + 3 }}", "{{ l + l }}", "{{ 'a' + s if t else 'b' }}", "{{ ('a' + s if fa else 'b') + 'c' }}", "{{ 'a' ~ no ~ 1 + 2 }}", "{{ 'x' + n|string + 'y' }}", "{{ '\n' + sp | trim + '\n' }}", "{{ msgs[0]['content'] | trim + '|' }}",
}

func TestTemplates(t *testing.T) {
	ref := newReference(t)
	for _, tmpl := range templates {
		compareWith(t, ref, tmpl, exprVars)
	}
}
