package prompt

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"

	"github.com/grapevine-epp/grapevine/indexer/prompt/jinja"
)

// gonjaTemplate is a chat template that gonja renders: the complete engine
// behind package jinja, for templates with constructs that jinja lacks. It is
// slower by an order of magnitude.
type gonjaTemplate struct{ tmpl *exec.Template }

// mentions tells whether a template's source holds a word as a string.
func mentions(source, word string) bool {
	return strings.Contains(source, "'"+word+"'") || strings.Contains(source, `"`+word+`"`)
}

const gonjaName = "chat_template"

func newGonjaTemplate(source string) (t *gonjaTemplate, err error) {
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
	loader, err := loaders.NewShiftedLoader(gonjaName, strings.NewReader(strings.TrimSuffix(source, "\n")), empty)
	if err != nil {
		return nil, err
	}
	env := &exec.Environment{
		Context:           exec.EmptyContext().Update(builtins.GlobalFunctions).Update(builtins.GlobalVariables),
		Filters:           exec.NewFilterSet(map[string]exec.FilterFunction{}).Update(builtins.Filters),
		Tests:             builtins.Tests,
		ControlStructures: builtins.ControlStructures,
		Methods:           gonjaMethods(),
	}
	if err := env.Filters.Replace("tojson", gonjaToJSON); err != nil {
		return nil, err
	}
	env.Context.Set("raise_exception", gonjaRaise)
	tmpl, err := exec.NewTemplate(gonjaName, conf, loader, env)
	if err != nil {
		return nil, err
	}
	return &gonjaTemplate{tmpl}, nil
}

func gonjaRaise(_ *exec.Evaluator, _ *exec.VarArgs) (*exec.Value, error) {
	return nil, jinja.ErrRaised
}

// gonjaToJSON is tojson as Python writes it: source key order, Python's
// separators, no HTML escapes.
func gonjaToJSON(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	v, err := fromGonja(in, 0)
	if err != nil {
		return exec.AsValue(err)
	}
	var out []byte
	if indent, ok := params.KwArgs["indent"]; ok && indent.IsInteger() {
		out, err = jinja.AppendJSONIndent(nil, v, strings.Repeat(" ", max(0, min(indent.Integer(), 64))))
	} else {
		out, err = jinja.AppendJSON(nil, v)
	}
	if err != nil {
		return exec.AsValue(err)
	}
	return exec.AsSafeValue(string(out))
}

// render appends the template's output.
func (t *gonjaTemplate) render(dst []byte, vars []jinja.Var, now time.Time) (out []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("gonja: %v", r)
		}
	}()
	data := make(map[string]any, len(vars)+1)
	for _, v := range vars {
		data[v.Name] = toGonja(v.Value)
	}
	data["strftime_now"] = func(_ *exec.Evaluator, a *exec.VarArgs) (*exec.Value, error) {
		s, err := jinja.Strftime(now, a.First().String())
		return exec.AsValue(s), err
	}
	w := &boundedWriter{buf: bytes.NewBuffer(dst), left: maxGonjaOutput}
	if err := t.tmpl.Execute(w, exec.NewContext(data)); err != nil {
		return nil, err
	}
	return w.buf.Bytes(), nil
}

// maxGonjaOutput bounds what a template may write.
const maxGonjaOutput = 64 << 20

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

// gonjaList is a list whose negative indices work for every length.
type gonjaList []any

// GetItem implements exec.ItemGetter.
func (l gonjaList) GetItem(key any) (*exec.Value, bool) {
	i, ok := key.(int)
	if ok && i < 0 {
		i += len(l)
	}
	if !ok || i < 0 || i >= len(l) {
		return exec.AsValue(nil), false
	}
	return exec.ToValue(l[i]), true
}

// toGonja converts a value; dicts keep their key order.
func toGonja(v jinja.Value) any {
	switch v.Kind() {
	case jinja.String:
		return v.Str()
	case jinja.Bool:
		return v.IsTrue()
	case jinja.Int:
		n, _ := v.Int()
		return int(n)
	case jinja.Float:
		return v.Number()
	case jinja.List, jinja.Tuple:
		out := make(gonjaList, len(v.Items()))
		for i, it := range v.Items() {
			out[i] = toGonja(it)
		}
		return out
	case jinja.DictKind:
		d := exec.NewDict()
		v.Dict().Range(func(k string, it jinja.Value) bool {
			d.Pairs = append(d.Pairs, &exec.Pair{Key: exec.AsValue(k), Value: exec.ToValue(toGonja(it))})
			return true
		})
		return d
	}
	return nil
}

// fromGonja converts a value back.
func fromGonja(v *exec.Value, depth int) (jinja.Value, error) {
	switch {
	case depth > 100:
		return jinja.Value{}, fmt.Errorf("gonja: value nested too deep")
	case v.IsError():
		return jinja.Value{}, fmt.Errorf("gonja: %s", v.Error())
	case v.IsNil():
		return jinja.NoneValue(), nil
	case v.IsString():
		return jinja.StringValue(v.String()), nil
	case v.IsBool():
		return jinja.BoolValue(v.Bool()), nil
	case v.IsInteger():
		return jinja.IntValue(int64(v.Integer())), nil
	case v.IsFloat():
		return jinja.FloatValue(v.Float()), nil
	}
	var items []jinja.Value
	d := jinja.NewDict(0)
	var err error
	v.Iterate(func(_, _ int, key, val *exec.Value) bool {
		var it jinja.Value
		if val == nil {
			it, err = fromGonja(key, depth+1)
			items = append(items, it)
		} else {
			it, err = fromGonja(val, depth+1)
			d.Set(key.String(), it)
		}
		return err == nil
	}, func() {})
	if v.IsList() {
		return jinja.ListValue(items), err
	}
	return jinja.DictValue(d), err
}
