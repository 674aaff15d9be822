package jinja

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// reference is a running Python Jinja2.
type reference struct{ *parts.Script }

func newReference(t testing.TB) *reference {
	t.Helper()
	return &reference{parts.Start(t, "testdata/reference.py")}
}

// rendered is the result of rendering a template.
type rendered struct {
	Out   string `json:"out"`
	Error string `json:"error"`
}

var testNow = time.Date(2026, 3, 7, 9, 5, 3, 0, time.UTC)

// render renders a template by the reference; vars is a JSON object.
func (r *reference) render(template, vars string) (out rendered) {
	r.Ask(map[string]any{"template": template, "vars": json.RawMessage(vars), "now": testNow.Unix()}, &out)
	return out
}

// own renders a template with this package.
func own(t testing.TB, template, vars string) (string, error) {
	t.Helper()
	tmpl, err := Parse(template)
	if err != nil {
		return "", err
	}
	var d value.Decoder
	v, err := d.Decode([]byte(vars))
	if err != nil {
		t.Fatal(err)
	}
	var list []Var
	v.Dict().Range(func(k string, v value.Value) bool { list = append(list, Var{k, v}); return true })
	out, err := tmpl.Render(t.Context(), nil, list, Options{Now: testNow})
	return string(out), err
}

// compareWith renders by both and fails on a difference. An error must be an
// error on both sides.
func compareWith(t *testing.T, r *reference, template, vars string) {
	t.Helper()
	want := r.render(template, vars)
	got, err := own(t, template, vars)
	switch {
	case want.Error != "" && err == nil:
		t.Errorf("%q\n with %.200s\n  got %q\n want error %s", template, vars, got, want.Error)
	case want.Error == "" && err != nil:
		t.Errorf("%q\n with %.200s\n  got error %v\n want %q", template, vars, err, want.Out)
	case got != want.Out:
		t.Errorf("%q\n with %.200s\n  got %q\n want %q", template, vars, got, want.Out)
	}
}
