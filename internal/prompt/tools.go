package prompt

import (
	"github.com/grapevine-epp/grapevine/internal/prompt/shape"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// toolCalls converts an assistant's tool calls. Arguments given as a JSON string are parsed into an
// object; any other non-object becomes an empty object. Members follow the order of the engine's
// request schema, with unknown members last.
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
		args := c.arguments(fn)
		if !c.callsAsGiven {
			out = append(out, declaredCall(call, fn, args))
			continue
		}
		f := shape.CopyDict(fn)
		f.Set("arguments", args)
		d := shape.CopyDict(call)
		d.Set("function", value.FromDict(f))
		out = append(out, value.FromDict(d))
	}
	return out, true
}

// declaredCall returns a tool call in the form of vLLM's request schema.
func declaredCall(call, fn *value.Dict, args value.Value) value.Value {
	f := shape.First(fn, "arguments", "name")
	f.Set("arguments", args)
	d := shape.First(call, "id", "function", "type")
	d.Set("function", value.FromDict(f))
	return value.FromDict(d)
}

// arguments returns a tool call's arguments in the form for templates.
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
