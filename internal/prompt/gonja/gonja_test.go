package gonja

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/prompt/jinja"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// TestLeft renders what package jinja leaves to this one. The wanted texts are
// Python's.
func TestLeft(t *testing.T) {
	d := value.NewDict(1)
	d.Set("k", value.List([]value.Value{value.Int(1)}))
	vars := []jinja.Var{
		{Name: "v", Value: value.FromDict(d)},
		{Name: "l", Value: value.List([]value.Value{value.Int(3), value.Int(1), value.Int(2)})},
		{Name: "s", Value: value.String("a-b c")},
	}
	for src, want := range map[string]string{
		"{{ v | tojson(indent=2) }}":                             "{\n  \"k\": [\n    1\n  ]\n}",
		"{{ l | sum }} {{ l | max }} {{ l | min }}":              "6 3 1",
		"{{ s | escape }}":                                       "a-b c",
		"{{ s.isdigit() }} {{ '12'.isdigit() }}":                 "False True",
		"{{ s.partition('-')[0] }} {{ '7'.zfill(3) }}":           "a 007",
		"{{ l[-1] is divisibleby 2 }} {{ 'A' is upper }}":        "True True",
		"{{ '{} {}'.format('a', 1) }}":                           "a 1",
		"{% with a = 1 %}{{ a }}{% endwith %}":                   "1",
		"{% filter upper %}x{% endfilter %}":                     "X",
		"{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}": "aba",
		"{% for x in l recursive %}{{ x }}{% endfor %}":          "312",
	} {
		tmpl, err := Parse(src)
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		if out, err := tmpl.Render(nil, vars, time.Unix(0, 0)); err != nil || string(out) != want {
			t.Errorf("%s: got %q, %v; want %q", src, out, err, want)
		}
	}
}

// TestRefused checks that what gonja renders otherwise than Python is an error.
func TestRefused(t *testing.T) {
	for _, src := range []string{"{{ 2.5 | round }}", "{{ 'a-b' | wordcount }}"} {
		tmpl, err := Parse(src)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := tmpl.Render(nil, nil, time.Unix(0, 0)); err == nil {
			t.Errorf("%s: %q", src, out)
		}
	}
}
