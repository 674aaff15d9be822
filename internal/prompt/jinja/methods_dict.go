package jinja

import (
	"strings"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

var dictMethods = map[string]method{
	"items": func(_ *state, v value.Value, _ args) value.Value { return dictItems(v.Dict()) },
	"keys":  func(_ *state, v value.Value, _ args) value.Value { return value.List(v.Dict().Keys()) },
	"values": func(_ *state, v value.Value, _ args) value.Value {
		d := v.Dict()
		out := make([]value.Value, d.Len())
		for i := range out {
			_, out[i] = d.At(i)
		}
		return value.List(out)
	},
	"get": func(_ *state, v value.Value, a args) value.Value {
		a.most("get", 2)
		if got, ok := v.Dict().Lookup(a.get(0, "", value.Value{})); ok {
			return got
		}
		return a.get(1, "", value.None())
	},
	"copy": func(_ *state, v value.Value, _ args) value.Value {
		d := value.NewDict(v.Dict().Len())
		copyInto(d, v.Dict())
		return value.FromDict(d)
	},
	// The engines' sandbox rejects methods that change a dict.
	"pop": unsafeMethod("pop"), "update": unsafeMethod("update"), "clear": unsafeMethod("clear"),
	"setdefault": unsafeMethod("setdefault"), "popitem": unsafeMethod("popitem"), "fromkeys": unsafeMethod("fromkeys"),
}

var listMethods = map[string]method{
	"index": func(st *state, v value.Value, a args) value.Value {
		for i, it := range v.Items() {
			if st.meter.Equal(it, a.get(0, "", value.Value{})) {
				return value.Int(int64(i))
			}
		}
		value.Raise("value is not in list")
		return value.Value{}
	},
	"count": func(st *state, v value.Value, a args) value.Value {
		n := int64(0)
		for _, it := range v.Items() {
			if st.meter.Equal(it, a.get(0, "", value.Value{})) {
				n++
			}
		}
		return value.Int(n)
	},
	"append": unsafeMethod("append"), "extend": unsafeMethod("extend"), "insert": unsafeMethod("insert"), "pop": unsafeMethod("pop"),
	"remove": unsafeMethod("remove"), "reverse": unsafeMethod("reverse"), "sort": unsafeMethod("sort"), "clear": unsafeMethod("clear"),
	"copy": func(_ *state, v value.Value, _ args) value.Value { return value.List(v.Items()) },
}

func unsafeMethod(name string) method {
	return func(*state, value.Value, args) value.Value {
		value.Raise("access to attribute %q is unsafe", name)
		return value.Value{}
	}
}

func dictItems(d *value.Dict) value.Value {
	out := make([]value.Value, d.Len())
	for i := range out {
		key, val := d.At(i)
		out[i] = value.Tuple([]value.Value{key, val})
	}
	return value.List(out)
}

// copyInto sets the keys of from in d.
func copyInto(d, from *value.Dict) {
	for i := range from.Len() {
		d.Store(from.At(i))
	}
}

// leftMethods are methods of Python that this package does not have.
var leftMethods = setOf("encode expandtabs format_map isidentifier isprintable istitle translate")

// leftOfMarkup are further ones of a Markup.
var leftOfMarkup = setOf("escape striptags unescape")

func setOf(words string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}
