package jinja

import "github.com/grapevine-epp/grapevine/internal/prompt/value"

// markupMethod returns the method of a Markup for a method of str: its strings are Markups, and
// the text that some methods insert is escaped.
func markupMethod(name string, m method) method {
	return func(st *state, self value.Value, a args) value.Value {
		switch name {
		case "replace", "center", "ljust", "rjust": // the second argument
			if len(a.pos) > 1 {
				a.pos[1] = value.Escape(a.pos[1])
			}
		case "join":
			items := st.iterate(a.get(0, "", value.Value{}))
			escaped := make([]value.Value, len(items))
			for i, v := range items {
				escaped[i] = st.made(v, value.Escape(v))
			}
			a.pos = []value.Value{value.List(escaped)}
		case "format":
			for _, list := range [][]value.Value{a.pos, a.vals} {
				for i, v := range list {
					list[i] = st.made(v, value.Escape(v))
				}
			}
		}
		return asMarkup(m(st, self, a), self)
	}
}

// asMarkup returns a str, or the members of a list or tuple, as Markups.
func asMarkup(v, of value.Value) value.Value {
	items := make([]value.Value, len(v.Items()))
	for i, it := range v.Items() {
		items[i] = it.As(of)
	}
	switch v.Kind() {
	case value.KindList:
		return value.List(items)
	case value.KindTuple:
		return value.Tuple(items)
	}
	return v.As(of)
}

// escapedArgs escapes the arguments of a Markup's format string, except for numbers.
func escapedArgs(v value.Value) value.Value {
	switch v.Kind() {
	case value.KindTuple:
		items := make([]value.Value, len(v.Items()))
		for i, it := range v.Items() {
			if items[i] = it; it.Kind() != value.KindTuple {
				items[i] = escapedArgs(it)
			} else {
				items[i] = value.Escape(it)
			}
		}
		return value.Tuple(items)
	case value.KindBool, value.KindInt, value.KindFloat, value.KindBig:
		return v
	}
	return value.Escape(v)
}
