package jinja

import (
	"strings"
	"testing"
)

const markupVars = `{"x":"<a> & 'b' \"c\"","y":"<y>","l":["<i>","<j>"],"d":{"k":"<v>"},"n":3,"f":1.5,"no":null,"e":""}`

// markups are expressions with a value that may be a Markup. A str added to it shows whether it is one.
var markups = strings.Split(`x|safe
y + (x|safe)
(x|safe) ~ y
y ~ (x|safe)
(x|safe) ~ (x|safe)
(x|safe) * 2
2 * (x|safe)
(x|safe) + (y|safe)
(x|safe) + (n|string)
(x|safe) + n
y + (x|safe) + y
(y + y) + (x|safe)
"<a>"|safe + "</s>"
"%s" % y
"%s-%d"|safe % (y, 3)
"%s"|safe % (y|safe)
"%s"|safe % l
"%s"|safe % d
"%s"|safe % no
"%s %.2f"|safe % (n, f)
"%s"|safe % (("<q>", 1), )
"%s"|safe % undefinedthing
x|safe|upper
x|safe|lower
x|safe|trim
x|safe|capitalize
x|safe|title
x|safe|string
x|string
x|safe|replace("a", "<q>")
x|safe|indent
x|safe|indent(2, true)
x|safe|first
x|safe|last
x|safe|reverse
(x|safe|list)[0]
x|safe|center(40)
x|safe|default("q")
"%s"|safe|format(y)
"%s"|format(y|safe)
l|join(", "|safe)
l|map("safe")|join(", ")
(l|map("safe")|list)[0]
(l|map("e")|list)[0]
(x|safe)[0]
(x|safe)[1:3]
(x|safe)[::-1]
x|safe|tojson
x|escape
x|e
x|safe|e
x|e|e
x|forceescape
x|safe|forceescape
l|e
n|e
no|e
undefinedthing|e
(x|safe).upper()
(x|safe).lower()
(x|safe).capitalize()
(x|safe).title()
(x|safe).strip()
(x|safe).strip("<")
(x|safe).lstrip("<")
(x|safe).rstrip(">")
(x|safe).replace("a", "<q>")
(x|safe).replace("<", "q")
(x|safe).replace("a", "<q>"|safe)
(x|safe).split(" ")[0]
(x|safe).split("<")
(x|safe).rsplit(" ", 1)[0]
(x|safe).splitlines()[0]
(x|safe).partition(" ")[0]
(x|safe).partition("<")
(x|safe).rpartition(" ")[2]
(x|safe).center(40)
(x|safe).center(40, "<")
(x|safe).ljust(40, "-")
(x|safe).rjust(40)
(x|safe).zfill(40)
(x|safe).removeprefix("<")
(x|safe).removesuffix(">")
(x|safe).swapcase()
(x|safe).join(l)
(x|safe).join(["<p>"|safe, "<q>"])
"-".join([x|safe, y])
("{} {}"|safe).format(y, n)
("{k}"|safe).format(k=y)
"{}".format(x|safe)
(x|safe).startswith("<")
(x|safe).find("<")
(x|safe).count("<")
(x|safe).endswith(">")
"<" in (x|safe)
(x|safe) == x
(x|safe) is string
(x|safe) is escaped
x is escaped
x|e is escaped
[x|safe, y]
{"k": x|safe}
{"k": 1}[("k"|safe)]
[x|safe]|tojson
x|safe|length
x|safe|wordcount
x|safe or y
e|safe or y
e|safe
((x|safe)|attr("upper"))()
n|safe
l|safe
no|safe
undefinedthing|safe
namespace(a=x|safe).a
y|replace("y", "<"|safe)
[x|safe, y]|max
[x|safe, y]|sort|first
x|safe if n else y`, "\n")

// TestMarkup: the filter safe returns a Markup, to which only escaped text can be added.
func TestMarkup(t *testing.T) {
	ref := newReference(t)
	for _, e := range markups {
		compareWith(t, ref, "{{ "+e+" }}", markupVars)
		compareWith(t, ref, "{{ ("+e+") + y }}", markupVars)
		compareWith(t, ref, "{% set v = "+e+" %}{{ v ~ y }}{{ y + v }}", markupVars)
	}
	for _, src := range []string{
		"{% set v %}{{ x|safe }}{% endset %}{{ v + y }}",
		"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(x|safe) + y }}",
		"{% for c in x|safe %}{{ c + y }}{% endfor %}",
		"{% filter e %}<z>{% endfilter %}",
		"{% set ns = namespace(s='') %}{% for v in l %}{% set ns.s = ns.s + (v|safe) %}{% endfor %}{{ ns.s + y }}",
	} {
		compareWith(t, ref, src, markupVars)
	}
}
