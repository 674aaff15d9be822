package jinja

import (
	"strings"
	"unicode"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// filterFunc applies a filter.
type filterFunc func(st *state, in value.Value, a args) value.Value

var filterTable = map[string]filterFunc{
	"trim": func(_ *state, in value.Value, a args) value.Value {
		a.most("trim", 1, "chars")
		if in.Kind() == value.KindUndefined {
			return value.String("")
		}
		return value.String(strip(in.Text(), a.get(0, "chars", value.None()), true, true)).As(in)
	},
	"length": filterLength, "count": filterLength,
	"upper":      func(_ *state, in value.Value, _ args) value.Value { return value.String(upper(in.Text())).As(in) },
	"lower":      func(_ *state, in value.Value, _ args) value.Value { return value.String(lower(in.Text())).As(in) },
	"capitalize": func(_ *state, in value.Value, _ args) value.Value { return value.String(capitalize(in.Text())).As(in) },
	"title":      func(_ *state, in value.Value, _ args) value.Value { return value.String(titleFilter(in.Text())) },
	"string":     func(_ *state, in value.Value, _ args) value.Value { return value.String(in.Text()).As(in) },
	"safe":       func(_ *state, in value.Value, _ args) value.Value { return value.Markup(in.Text()) },
	"escape":     func(_ *state, in value.Value, _ args) value.Value { return value.Escape(in) },
	"e":          func(_ *state, in value.Value, _ args) value.Value { return value.Escape(in) },
	"forceescape": func(_ *state, in value.Value, _ args) value.Value {
		return value.Escape(value.String(in.Text()))
	},
	"replace": func(_ *state, in value.Value, a args) value.Value {
		a.most("replace", 3, "old", "new", "count")
		old, repl := a.get(0, "old", value.Value{}), a.get(1, "new", value.Value{})
		n := int64(-1)
		if c, ok := a.get(2, "count", value.None()).Int(); ok {
			n = c
		}
		return value.String(replace(in.Text(), old.Text(), repl.Text(), int(n)))
	},
	"indent":  filterIndent,
	"join":    filterJoin,
	"tojson":  filterToJSON,
	"default": filterDefault, "d": filterDefault,
	"first": func(st *state, in value.Value, _ args) value.Value { return nth(st, in, 0, "first") },
	"last": func(st *state, in value.Value, _ args) value.Value {
		return nth(st, in, -1, "last")
	},
	"list":    func(st *state, in value.Value, _ args) value.Value { return value.List(st.iterate(in)) },
	"reverse": filterReverse,
	"items": func(_ *state, in value.Value, _ args) value.Value {
		if in.Kind() == value.KindUndefined {
			return value.List(nil)
		}
		if in.Kind() != value.KindDict {
			value.Raise("items: a %s is no mapping", in.Kind())
		}
		return dictItems(in.Dict())
	},
	"dictsort":   filterDictSort,
	"sort":       filterSort,
	"unique":     filterUnique,
	"map":        filterMap,
	"select":     func(st *state, in value.Value, a args) value.Value { return filterSelect(st, in, a, false, true) },
	"reject":     func(st *state, in value.Value, a args) value.Value { return filterSelect(st, in, a, false, false) },
	"selectattr": func(st *state, in value.Value, a args) value.Value { return filterSelect(st, in, a, true, true) },
	"rejectattr": func(st *state, in value.Value, a args) value.Value { return filterSelect(st, in, a, true, false) },
	"sum":        filterSum, "min": filterExtreme(-1), "max": filterExtreme(1), "round": filterRound, "attr": filterAttr,
	"center": func(_ *state, in value.Value, a args) value.Value {
		a.most("center", 1, "width")
		width := value.Int(a.intArg("center", 0, "width", 80))
		return padded("center", value.String(in.Text()), args{pos: []value.Value{width}}).As(in)
	},
	"int": filterInt, "float": filterFloat, "abs": filterAbs,
	"wordcount": func(_ *state, in value.Value, _ args) value.Value {
		return value.Int(int64(len(strings.FieldsFunc(in.Text(), func(r rune) bool {
			return r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r)
		}))))
	},
	"format": func(_ *state, in value.Value, a args) value.Value {
		return percentFormat(value.String(in.Text()).As(in), value.Tuple(a.pos))
	},
}

func filterLength(_ *state, in value.Value, _ args) value.Value {
	switch in.Kind() {
	case value.KindUndefined:
		return value.Int(0)
	case value.KindString:
		return value.Int(int64(value.RuneCount(in.Str())))
	case value.KindList, value.KindTuple:
		return value.Int(int64(len(in.Items())))
	case value.KindDict:
		return value.Int(int64(in.Dict().Len()))
	}
	value.Raise("a %s has no length", in.Kind())
	return value.Value{}
}

func filterDefault(_ *state, in value.Value, a args) value.Value {
	a.most("default", 2, "default_value", "boolean")
	if in.Kind() == value.KindUndefined || a.flag(1, "boolean") && !in.IsTrue() {
		return a.get(0, "default_value", value.String(""))
	}
	return in
}

func filterIndent(_ *state, in value.Value, a args) value.Value {
	a.most("indent", 3, "width", "first", "blank")
	width := a.get(0, "width", value.Int(4))
	pad := width.Str()
	if n, ok := width.Int(); ok {
		pad = value.Repeat(" ", n)
	}
	first, blank := a.flag(1, "first"), a.flag(2, "blank")
	// The filter adds a line end, splits, and so keeps a last empty line.
	lines := splitLines(in.Text()+"\n", false)
	value.CheckSize(len(in.Str()) + len(lines)*len(pad))
	var b strings.Builder
	for i, line := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		if i == 0 && first || i > 0 && (blank || line != "") {
			b.WriteString(pad)
		}
		b.WriteString(line)
	}
	return value.String(b.String()).As(in)
}

func filterJoin(st *state, in value.Value, a args) value.Value {
	a.most("join", 2, "d", "attribute")
	sep := a.get(0, "d", value.String("")).Text()
	by := a.get(1, "attribute", value.None())
	var b []byte
	for i, v := range st.iterate(in) {
		if i > 0 {
			b = append(b, sep...)
		}
		if by.Kind() != value.KindNone {
			v = byPath(v, by)
		}
		b = v.Append(b)
		value.CheckSize(len(b))
	}
	return value.String(string(b))
}

// nth is the first (0) or the last (-1) of a sequence.
func nth(st *state, in value.Value, i int64, what string) value.Value {
	if in.Kind() == value.KindString {
		if i == 0 { // iteration yields plain characters, reversed iteration does not
			in = value.String(in.Str())
		}
		return value.At(in, i)
	}
	items := value.List(st.iterate(in))
	if !items.IsTrue() {
		return value.Undefined("no " + what + " item, sequence was empty")
	}
	return value.At(items, i)
}

func filterReverse(st *state, in value.Value, _ args) value.Value {
	if in.Kind() != value.KindString {
		in = value.List(st.iterate(in))
	}
	return value.Slice(in, value.Bound{}, value.Bound{}, value.Bound{N: -1, Set: true})
}

func filterToJSON(_ *state, in value.Value, a args) value.Value {
	a.most("tojson", 4, "ensure_ascii", "indent", "separators", "sort_keys")
	style := value.PythonStyle()
	if ind := a.get(1, "indent", value.None()); ind.Kind() != value.KindNone {
		pad := ind.Str()
		if n, ok := ind.Int(); ok {
			pad = value.Repeat(" ", n)
		}
		style = value.Indented(pad)
	}
	if sep := a.get(2, "separators", value.None()).Items(); len(sep) == 2 {
		style.Item, style.Key = sep[0].Text(), sep[1].Text()
	}
	style.ASCII, style.SortKeys = a.flag(0, "ensure_ascii"), a.flag(3, "sort_keys")
	out, err := style.Append(nil, in)
	if err != nil {
		value.End(err)
	}
	return value.String(string(out))
}
