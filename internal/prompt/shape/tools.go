package shape

import (
	"strings"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// CopyDict returns a dictionary with the same values.
func CopyDict(d *value.Dict) *value.Dict {
	out := value.NewDict(d.Len())
	d.Range(func(k string, v value.Value) bool { out.Set(k, v); return true })
	return out
}

// DumpTools returns tool definitions as the engines' request models dump them.
// It returns false when one is malformed.
func DumpTools(v value.Value) (value.Value, bool) {
	if v.Kind() != value.KindList {
		return v, v.Kind() == value.KindNone || v.Kind() == value.KindUndefined
	}
	out := make([]value.Value, 0, len(v.Items()))
	for _, it := range v.Items() {
		d := it.Dict()
		if d == nil {
			return v, false
		}
		f, _ := d.Get("function")
		fn := f.Dict()
		if fn == nil {
			return v, false
		}
		tool := FunctionTool(Pick(fn, "name", "description", "parameters"), fn)
		if late, _ := d.Get("defer_loading"); late.Kind() == value.KindBool {
			f, _ := tool.Dict().Get("function")
			if _, ok := f.Dict().Get("defer_loading"); !ok {
				f.Dict().Set("defer_loading", late)
			}
			tool.Dict().Set("defer_loading", late)
		}
		out = append(out, tool)
	}
	return value.List(out), true
}

// FunctionTool wraps a dumped function; strict and defer_loading stay where
// they are set.
func FunctionTool(dumped, fn *value.Dict) value.Value {
	for _, key := range []string{"strict", "defer_loading"} {
		if s, ok := fn.Get(key); ok && s.Kind() != value.KindNone {
			dumped.Set(key, s)
		}
	}
	tool := value.NewDict(2)
	tool.Set("type", value.String("function"))
	tool.Set("function", value.FromDict(dumped))
	return value.FromDict(tool)
}

// Pick returns the keys in the given order, with None for absent keys.
func Pick(d *value.Dict, keys ...string) *value.Dict {
	out := value.NewDict(len(keys))
	for _, k := range keys {
		v, ok := d.Get(k)
		if !ok {
			v = value.None()
		}
		out.Set(k, v)
	}
	return out
}

// First returns a copy in which some keys, if present, come first in the given order.
func First(d *value.Dict, keys ...string) *value.Dict {
	out := value.NewDict(d.Len())
	for _, k := range keys {
		if v, ok := d.Get(k); ok {
			out.Set(k, v)
		}
	}
	d.Range(func(k string, v value.Value) bool {
		out.Set(k, v) // a key that is there keeps its place
		return true
	})
	return out
}

// JoinTexts joins parts of text as engines do.
func JoinTexts(texts []value.Value) string { return JoinWith(texts, "\n") }

// JoinWith joins parts of text with a separator.
func JoinWith(texts []value.Value, separator string) string {
	if len(texts) == 1 {
		return texts[0].Str()
	}
	list := make([]string, len(texts))
	for i, t := range texts {
		list[i] = t.Str()
	}
	return strings.Join(list, separator)
}
