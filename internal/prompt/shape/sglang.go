package shape

import "github.com/grapevine-epp/grapevine/internal/prompt/value"

// sglangFunction are the members of a function that SGLang dumps, in the order of its
// model. Members that the client sent keep the client's order and come first.
var sglangFunction = [...]string{"description", "name", "parameters", "strict", "defer_loading"}

// SGLangTools returns tool definitions as SGLang dumps them. It returns false when one is
// malformed.
func SGLangTools(v value.Value) (value.Value, bool) {
	if v.Kind() != value.KindList {
		return v, v.Kind() == value.KindNone || v.Kind() == value.KindUndefined
	}
	out := make([]value.Value, 0, len(v.Items()))
	for _, it := range v.Items() {
		f, _ := it.Dict().Get("function")
		fn := f.Dict()
		if fn == nil {
			return v, false
		}
		late, _ := it.Dict().Get("defer_loading")
		if late.Kind() == value.KindUndefined {
			late = value.None()
		}
		tool := value.NewDict(3)
		tool.Set("type", value.String("function"))
		tool.Set("function", value.FromDict(sglangDump(fn, late)))
		tool.Set("defer_loading", late)
		out = append(out, value.FromDict(tool))
	}
	if len(out) == 0 {
		return value.None(), true
	}
	return value.List(out), true
}

func sglangDump(fn *value.Dict, late value.Value) *value.Dict {
	out := value.NewDict(len(sglangFunction))
	known := func(key string) bool {
		for _, k := range sglangFunction {
			if k == key {
				return true
			}
		}
		return false
	}
	fn.Range(func(k string, v value.Value) bool {
		optional := k == "strict" || k == "defer_loading"
		if known(k) && !(optional && v.Kind() == value.KindNone) {
			out.Set(k, v)
		}
		return true
	})
	for _, k := range sglangFunction[:3] {
		if _, ok := out.Get(k); !ok {
			out.Set(k, value.None())
		}
	}
	if _, ok := out.Get("defer_loading"); !ok && late.Kind() != value.KindNone {
		out.Set("defer_loading", late)
	}
	return out
}
