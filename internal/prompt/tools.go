package prompt

import "github.com/grapevine-epp/grapevine/internal/prompt/value"

// toolCalls converts an assistant's tool calls: arguments that are a JSON
// string become the object that templates expect, anything else that is no
// object an empty one.
func (c *converter) toolCalls(v value.Value) ([]value.Value, bool) {
	if v.Kind() != value.KindList {
		c.bad = "tool_calls is a " + v.Kind().String()
		return nil, false
	}
	out := make([]value.Value, 0, len(v.Items()))
	for _, it := range v.Items() {
		call := it.Dict()
		var fn *value.Dict
		if call != nil {
			f, _ := call.Get("function")
			fn = f.Dict()
		}
		if fn == nil {
			c.bad = "a tool call has no function"
			return nil, false
		}
		f := copyDict(fn)
		f.Set("arguments", c.arguments(fn))
		d := copyDict(call)
		d.Set("function", value.FromDict(f))
		out = append(out, value.FromDict(d))
	}
	return out, true
}

// arguments returns a tool call's arguments as templates see them.
func (c *converter) arguments(fn *value.Dict) value.Value {
	args, _ := fn.Get("arguments")
	if args.Kind() == value.KindString {
		var err error
		if args, err = c.dec.Nested(args.Str()); err != nil {
			args = value.None()
		}
	}
	if args.Dict() != nil {
		return args
	}
	return value.FromDict(value.NewDict(0))
}

func copyDict(d *value.Dict) *value.Dict {
	out := value.NewDict(d.Len())
	d.Range(func(k string, v value.Value) bool { out.Set(k, v); return true })
	return out
}

// dumpTools returns tool definitions as the engines' request models dump them.
// It returns false when one is malformed.
func dumpTools(v value.Value) (value.Value, bool) {
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
		tool := functionTool(pick(fn, "name", "description", "parameters"), fn)
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

// functionTool wraps a dumped function; strict and defer_loading stay where
// they are set.
func functionTool(dumped, fn *value.Dict) value.Value {
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

// pick returns the keys in the given order, None for those that are absent.
func pick(d *value.Dict, keys ...string) *value.Dict {
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
