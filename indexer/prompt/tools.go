package prompt

import "github.com/grapevine-epp/grapevine/indexer/prompt/jinja"

// toolCalls converts an assistant's tool calls: arguments that are a JSON
// string become the object that templates expect, anything else that is no
// object or list an empty one.
func (c *converter) toolCalls(v jinja.Value) ([]jinja.Value, bool) {
	if v.Kind() != jinja.List {
		c.bad = "tool_calls is a " + v.Kind().String()
		return nil, false
	}
	out := make([]jinja.Value, 0, len(v.Items()))
	for _, it := range v.Items() {
		call := it.Dict()
		var fn *jinja.Dict
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
		d.Set("function", jinja.DictValue(f))
		out = append(out, jinja.DictValue(d))
	}
	return out, true
}

// arguments returns a tool call's arguments as templates see them.
func (c *converter) arguments(fn *jinja.Dict) jinja.Value {
	args, _ := fn.Get("arguments")
	switch args.Kind() {
	case jinja.DictKind, jinja.List:
		return args
	case jinja.String:
		if v, err := c.dec.Nested(args.Str()); err == nil {
			return v
		}
	}
	return jinja.DictValue(jinja.NewDict(0))
}

func copyDict(d *jinja.Dict) *jinja.Dict {
	out := jinja.NewDict(d.Len())
	d.Range(func(k string, v jinja.Value) bool { out.Set(k, v); return true })
	return out
}

// dumpTools returns tool definitions as the engines' request models dump them.
// It returns false when one is malformed.
func dumpTools(v jinja.Value) (jinja.Value, bool) {
	if v.Kind() != jinja.List {
		return v, v.Kind() == jinja.None || v.Kind() == jinja.Undefined
	}
	out := make([]jinja.Value, 0, len(v.Items()))
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
		out = append(out, functionTool(pick(fn, "name", "description", "parameters"), fn))
	}
	return jinja.ListValue(out), true
}

// functionTool wraps a dumped function; strict and defer_loading stay where
// they are set.
func functionTool(dumped, fn *jinja.Dict) jinja.Value {
	for _, key := range []string{"strict", "defer_loading"} {
		if s, ok := fn.Get(key); ok && s.Kind() != jinja.None {
			dumped.Set(key, s)
		}
	}
	tool := jinja.NewDict(2)
	tool.Set("type", jinja.StringValue("function"))
	tool.Set("function", jinja.DictValue(dumped))
	return jinja.DictValue(tool)
}

// pick returns the keys in the given order, None for those that are absent.
func pick(d *jinja.Dict, keys ...string) *jinja.Dict {
	out := jinja.NewDict(len(keys))
	for _, k := range keys {
		v, ok := d.Get(k)
		if !ok {
			v = jinja.NoneValue()
		}
		out.Set(k, v)
	}
	return out
}
