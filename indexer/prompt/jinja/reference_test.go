package jinja

import (
	"bufio"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

// reference is a running Python Jinja2.
type reference struct {
	t   testing.TB
	in  io.WriteCloser
	out *bufio.Reader
}

func newReference(t testing.TB) *reference {
	t.Helper()
	cmd := exec.Command(parts.Python(t), filepath.Join("testdata", "reference.py"))
	cmd.Env = append(cmd.Environ(), "TZ=UTC")
	cmd.Stderr = testWriter{t}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	return &reference{t: t, in: in, out: bufio.NewReaderSize(out, 1<<20)}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("python: %s", p)
	return len(p), nil
}

// rendered is what came of a template.
type rendered struct {
	Out   string `json:"out"`
	Error string `json:"error"`
}

var testNow = time.Date(2026, 3, 7, 9, 5, 3, 0, time.UTC)

// render renders a template by the reference; vars is a JSON object.
func (r *reference) render(template, vars string) rendered {
	r.t.Helper()
	req, err := json.Marshal(map[string]any{"template": template, "vars": json.RawMessage(vars), "now": testNow.Unix()})
	if err != nil {
		r.t.Fatalf("%v: %s", err, vars)
	}
	if _, err := r.in.Write(append(req, '\n')); err != nil {
		r.t.Fatal(err)
	}
	line, err := r.out.ReadBytes('\n')
	if err != nil {
		r.t.Fatalf("the reference gave no answer: %v", err)
	}
	var out rendered
	if err := json.Unmarshal(line, &out); err != nil {
		r.t.Fatal(err)
	}
	return out
}

// own renders a template by this package.
func own(t testing.TB, template, vars string) (string, error) {
	t.Helper()
	tmpl, err := Parse(template)
	if err != nil {
		return "", err
	}
	var d Decoder
	v, err := d.Decode([]byte(vars))
	if err != nil {
		t.Fatal(err)
	}
	var list []Var
	v.Dict().Range(func(k string, v Value) bool { list = append(list, Var{k, v}); return true })
	out, err := tmpl.Render(nil, list, Options{Now: testNow})
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
