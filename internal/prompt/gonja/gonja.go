package gonja

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"

	"github.com/grapevine-epp/grapevine/internal/prompt/jinja"
	"github.com/grapevine-epp/grapevine/internal/prompt/pyjson"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// Template is a parsed template. It is immutable and safe for concurrent use.
type Template struct {
	tmpl   *exec.Template
	source string
}

// Mentions tells whether the template's source holds a word as a string.
func (t *Template) Mentions(word string) bool {
	return strings.Contains(t.source, "'"+word+"'") || strings.Contains(t.source, `"`+word+`"`)
}

// templateName is what gonja calls the template in its messages.
const templateName = "chat_template"

// Parse parses a chat template as engines configure Jinja.
func Parse(source string) (t *Template, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("gonja: %v", r)
		}
	}()
	conf := config.New()
	conf.TrimBlocks, conf.LeftStripBlocks = true, true
	empty, err := loaders.NewMemoryLoader(map[string]string{})
	if err != nil {
		return nil, err
	}
	loader, err := loaders.NewShiftedLoader(templateName, strings.NewReader(strings.TrimSuffix(source, "\n")), empty)
	if err != nil {
		return nil, err
	}
	env := &exec.Environment{
		Context:           exec.EmptyContext().Update(builtins.GlobalFunctions).Update(builtins.GlobalVariables),
		Filters:           exec.NewFilterSet(map[string]exec.FilterFunction{}).Update(builtins.Filters),
		Tests:             builtins.Tests,
		ControlStructures: builtins.ControlStructures,
		Methods:           methods(),
	}
	if err := env.Filters.Replace("tojson", toJSON); err != nil {
		return nil, err
	}
	for _, name := range []string{"round", "wordcount"} {
		if err := env.Filters.Replace(name, refuse); err != nil {
			return nil, err
		}
	}
	env.Context.Set("raise_exception", raise)
	tmpl, err := exec.NewTemplate(templateName, conf, loader, env)
	if err != nil {
		return nil, err
	}
	return &Template{tmpl, source}, nil
}

// refuse stands for filters that gonja applies otherwise than Python.
func refuse(*exec.Evaluator, *exec.Value, *exec.VarArgs) *exec.Value {
	return exec.AsValue(errors.New("gonja: filter differs from Python's"))
}

func raise(_ *exec.Evaluator, _ *exec.VarArgs) (*exec.Value, error) {
	return nil, jinja.ErrRaised
}

// toJSON is tojson as Python writes it: source key order, Python's
// separators, no HTML escapes.
func toJSON(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	v, err := wrap(in, 0)
	if err != nil {
		return exec.AsValue(err)
	}
	var out []byte
	if indent, ok := params.KwArgs["indent"]; ok && indent.IsInteger() {
		out, err = pyjson.Indented(strings.Repeat(" ", max(0, min(indent.Integer(), 64)))).Append(nil, v)
	} else {
		out, err = pyjson.OneLine().Append(nil, v)
	}
	if err != nil {
		return exec.AsValue(err)
	}
	return exec.AsSafeValue(string(out))
}

// Render appends the template's output. Strings of the variables are not
// retained.
func (t *Template) Render(dst []byte, vars []jinja.Var, now time.Time) (out []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("gonja: %v", r)
		}
	}()
	data := make(map[string]any, len(vars)+1)
	for _, v := range vars {
		data[v.Name] = unwrap(v.Value)
	}
	data["strftime_now"] = func(_ *exec.Evaluator, a *exec.VarArgs) (*exec.Value, error) {
		s, err := jinja.Strftime(now, a.First().String())
		return exec.AsValue(s), err
	}
	w := &boundedWriter{buf: bytes.NewBuffer(dst), left: maxOutput}
	if err := t.tmpl.Execute(w, exec.NewContext(data)); err != nil {
		return nil, err
	}
	return w.buf.Bytes(), nil
}

// maxOutput bounds what a template may write.
const maxOutput = 64 << 20

// boundedWriter refuses to grow beyond a bound.
type boundedWriter struct {
	buf  *bytes.Buffer
	left int
}

func (w *boundedWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, io.ErrShortWrite
	}
	return w.buf.Write(p)
}

// list is a list whose negative indices work for every length.
type list []any

// GetItem implements exec.ItemGetter.
func (l list) GetItem(key any) (*exec.Value, bool) {
	i, ok := key.(int)
	if ok && i < 0 {
		i += len(l)
	}
	if !ok || i < 0 || i >= len(l) {
		return exec.AsValue(nil), false
	}
	return exec.ToValue(l[i]), true
}

// unwrap converts a value for gonja; dicts keep their key order.
func unwrap(v value.Value) any {
	switch v.Kind() {
	case value.KindString:
		return v.Str()
	case value.KindBool:
		return v.IsTrue()
	case value.KindInt:
		n, _ := v.Int()
		return int(n)
	case value.KindFloat:
		f, _ := v.Number()
		return f
	case value.KindList, value.KindTuple:
		out := make(list, len(v.Items()))
		for i, it := range v.Items() {
			out[i] = unwrap(it)
		}
		return out
	case value.KindDict:
		d := exec.NewDict()
		v.Dict().Range(func(k string, it value.Value) bool {
			d.Pairs = append(d.Pairs, &exec.Pair{Key: exec.AsValue(k), Value: exec.ToValue(unwrap(it))})
			return true
		})
		return d
	}
	return nil
}

// wrap converts one of gonja's values.
func wrap(v *exec.Value, depth int) (value.Value, error) {
	switch {
	case depth > 100:
		return value.Value{}, fmt.Errorf("gonja: value nested too deep")
	case v.IsError():
		return value.Value{}, fmt.Errorf("gonja: %s", v.Error())
	case v.IsNil():
		return value.None(), nil
	case v.IsString():
		return value.String(v.String()), nil
	case v.IsBool():
		return value.Bool(v.Bool()), nil
	case v.IsInteger():
		return value.Int(int64(v.Integer())), nil
	case v.IsFloat():
		return value.Float(v.Float()), nil
	}
	var items []value.Value
	d := value.NewDict(0)
	var err error
	v.Iterate(func(_, _ int, key, val *exec.Value) bool {
		var it value.Value
		if val == nil {
			it, err = wrap(key, depth+1)
			items = append(items, it)
		} else {
			it, err = wrap(val, depth+1)
			d.Set(key.String(), it)
		}
		return err == nil
	}, func() {})
	if v.IsList() {
		return value.List(items), err
	}
	return value.FromDict(d), err
}
