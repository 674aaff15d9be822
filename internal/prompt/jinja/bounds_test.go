package jinja

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// TestBounds renders templates that would work or grow without end. Each must
// end early with an error, and take little memory.
func TestBounds(t *testing.T) {
	parts.Full(t)
	long := make([]value.Value, 100_000)
	for i := range long {
		long[i] = value.Int(int64(i))
	}
	vars := []Var{{"l", value.List(long)}, {"s", value.String("some text that is repeated")}}
	// Values that are deep, and values that are small and hold others many times.
	deep := "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}"
	wide := "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(15) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{% for i in range(99999) %}"
	for _, src := range []string{
		"{{ 'a'|center(2000000000) }}", "{{ 'a'.center(2000000000) }}", "{{ 'a'.ljust(9000000000000000000) }}", "{{ '7'.zfill(2000000000) }}",
		"{% for i in range(99999) %}{% set z = l[::-1] %}{% endfor %}",
		"{% for i in range(99999) %}{% set z = l|list|reverse|list %}{% endfor %}",
		"{% for i in range(99999) %}{% if 'x' in l %}{% endif %}{% endfor %}",
		"{% for i in range(99999) %}{% if l == l[:] + [] %}{% endif %}{% endfor %}",
		"{% for i in range(99999) %}{% set z = s * 10000 %}{% endfor %}",
		"{% for i in range(99999) %}{% set z = (s * 1000).split('t') %}{% endfor %}",
		"{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
		"{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
		"{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson }}",
		"{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
		"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
		"{% for i in range(99999) %}{{ s * 100 }}{% endfor %}", "{{ l * 1000 }}", "{{ range(2000000000) }}", "{{ range(-9000000000000000000, 9000000000000000000) }}",
		"{{ l|tojson(indent=1000000) }}", "{{ l|join(s * 1000) }}", "{{ (s * 100000)|indent(1000) }}{{ ('\n' * 100000)|indent(1000, blank=true) }}",
		"{% macro m(n) %}{{ m(n+1) }}{% endmacro %}{{ m(0) }}", "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
		"{{ '{0}{0}{0}{0}'.format(s * 500000) }}", "{{ '%s%s%s%s' % (s * 500000, s * 500000, s * 500000, s * 500000) }}",
		"{% for i in range(99999) %}{{ l|sort|first }}{% endfor %}", "{% for i in range(99999) %}{% set z = l|unique|list %}{% endfor %}",
		deep + "{{ ns.x }}", deep + "{{ ns.x|tojson }}", deep + "{{ ns.x == ns.y }}", deep + "{{ ns.x < ns.y }}", deep + "{{ ns.x in [ns.y] }}",
		wide + "{% if ns.x == ns.y %}{% endif %}{% endfor %}", wide + "{% if [ns.x] < [ns.y] %}{% endif %}{% endfor %}", wide + "{% if ns.x in [1, ns.y] %}{% endif %}{% endfor %}",
		wide + "{% if [ns.x, 1] is eq([ns.y, 2]) %}{% endif %}{% endfor %}", wide + "{% set z = [ns.x, ns.y]|unique|list %}{% endfor %}", wide + "{% set z = [ns.x, ns.y]|sort %}{% endfor %}",
		wide + "{% set z = [[ns.x, 1], [ns.y, 2]]|max %}{% endfor %}", wide + "{% set z = [0, ns.x].count(ns.y) %}{% endfor %}", wide + "{% set z = loop.changed([ns.x, i]) %}{% endfor %}",
		"{% for i in range(99999) %}{% set z = [s * 9000, s * 9000]|sort %}{% endfor %}", "{% set b = [s * 9000, s * 9000] %}{% for i in range(99999) %}{% set z = b|max %}{% endfor %}",
		"{% set b = [s * 9000] * 1000 %}{% set c = [s * 4500 ~ s * 4500] * 1000 %}{% for i in range(99999) %}{% if b == c %}{% endif %}{% endfor %}",
	} {
		tmpl, err := Parse(src)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = tmpl.Render(t.Context(), nil, vars, Options{})
		runtime.ReadMemStats(&after)
		if !errors.Is(err, value.ErrBounds) {
			t.Errorf("%s: %v", src, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 400<<20 {
			t.Errorf("%s: %d MiB allocated", src, n>>20)
		}
	}
}

// TestEndsWithContext renders a long template whose context has ended.
func TestEndsWithContext(t *testing.T) {
	tmpl, err := Parse("{% for i in range(99999) %}{% for j in range(40) %}{% endfor %}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tmpl.Render(ctx, nil, nil, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	ctx, cancel = context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	if _, err := tmpl.Render(ctx, nil, nil, Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("out of time: %v", err)
	}
}
