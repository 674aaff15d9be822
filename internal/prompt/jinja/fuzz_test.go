package jinja

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

func FuzzRender(f *testing.F) {
	for _, s := range templates {
		f.Add(s)
	}
	for _, s := range expressions {
		f.Add("{{ " + s + " }}")
	}
	var d value.Decoder
	v, err := d.Decode([]byte(exprVars))
	if err != nil {
		f.Fatal(err)
	}
	var vars []Var
	v.Dict().Range(func(k string, v value.Value) bool { vars = append(vars, Var{k, v}); return true })
	sweep.Fuzz(f, sweep.Slow, func(t *testing.T, src string) {
		tmpl, err := Parse(src)
		if err != nil {
			return
		}
		out, err := tmpl.Render(t.Context(), []byte("x"), vars, Options{MaxOutput: 1 << 16})
		if err != nil && string(out) != "x" {
			t.Fatalf("%q: dst is %q after an error", src, out)
		}
	})
}
