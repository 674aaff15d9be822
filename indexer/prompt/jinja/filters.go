package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// filterFunc applies a filter.
type filterFunc func(st *state, in Value, a args) Value

func filters() map[string]filterFunc { return filterTable }

var filterTable = map[string]filterFunc{
	"trim": func(_ *state, in Value, a args) Value {
		a.most("trim", 1, "chars")
		if in.kind == Undefined {
			return StringValue("")
		}
		return StringValue(strip(str(in), a.get(0, "chars", NoneValue()), true, true))
	},
	"length": filterLength, "count": filterLength,
	"upper":      func(_ *state, in Value, _ args) Value { return StringValue(upper(str(in))) },
	"lower":      func(_ *state, in Value, _ args) Value { return StringValue(lower(str(in))) },
	"capitalize": func(_ *state, in Value, _ args) Value { return StringValue(capitalize(str(in))) },
	"title":      func(_ *state, in Value, _ args) Value { return StringValue(titleFilter(str(in))) },
	"string":     func(_ *state, in Value, _ args) Value { return StringValue(str(in)) },
	"safe":       func(_ *state, in Value, _ args) Value { return StringValue(str(in)) },
	"escape":     filterEscape, "e": filterEscape,
	"replace": func(_ *state, in Value, a args) Value {
		a.most("replace", 3, "old", "new", "count")
		old, repl := a.get(0, "old", Value{}), a.get(1, "new", Value{})
		n := int64(-1)
		if c := a.get(2, "count", NoneValue()); c.kind == Int {
			n = c.n
		}
		return StringValue(replace(str(in), str(old), str(repl), int(n)))
	},
	"indent":  filterIndent,
	"join":    filterJoin,
	"tojson":  filterToJSON,
	"default": filterDefault, "d": filterDefault,
	"first": func(_ *state, in Value, _ args) Value { return nth(in, 0, "first") },
	"last": func(_ *state, in Value, _ args) Value {
		return nth(in, -1, "last")
	},
	"list":    func(_ *state, in Value, _ args) Value { return ListValue(iterate(in)) },
	"reverse": filterReverse,
	"items": func(_ *state, in Value, _ args) Value {
		if in.kind == Undefined {
			return ListValue(nil)
		}
		if in.kind != DictKind {
			fail("items: a %s is no mapping", in.kind)
		}
		return dictItems(in.Dict())
	},
	"dictsort":   filterDictSort,
	"sort":       filterSort,
	"unique":     filterUnique,
	"map":        filterMap,
	"select":     func(st *state, in Value, a args) Value { return filterSelect(st, in, a, false, true) },
	"reject":     func(st *state, in Value, a args) Value { return filterSelect(st, in, a, false, false) },
	"selectattr": func(st *state, in Value, a args) Value { return filterSelect(st, in, a, true, true) },
	"rejectattr": func(st *state, in Value, a args) Value { return filterSelect(st, in, a, true, false) },
	"attr": func(_ *state, in Value, a args) Value {
		if in.kind == Undefined {
			fail("%q is undefined", in.s)
		}
		if in.kind == DictKind {
			return Value{s: a.strArg("attr", 0)} // attributes only, never items
		}
		return getAttr(in, a.strArg("attr", 0))
	},
	"int": filterInt, "float": filterFloat, "abs": filterAbs, "round": filterRound,
	"sum": filterSum, "min": filterMin, "max": filterMax,
	"wordcount": func(_ *state, in Value, _ args) Value {
		return IntValue(int64(len(strings.FieldsFunc(str(in), func(r rune) bool {
			return r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r)
		}))))
	},
	"format": func(_ *state, in Value, a args) Value {
		return StringValue(percentFormat(str(in), tupleValue(a.pos)))
	},
}

func filterLength(_ *state, in Value, _ args) Value {
	switch in.kind {
	case Undefined:
		return IntValue(0)
	case String:
		return IntValue(int64(runeCount(in.s)))
	case List, Tuple:
		return IntValue(int64(len(in.Items())))
	case DictKind:
		return IntValue(int64(in.Dict().Len()))
	}
	fail("a %s has no length", in.kind)
	return Value{}
}

func filterEscape(_ *state, in Value, _ args) Value {
	return StringValue(strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;").Replace(str(in)))
}

func filterDefault(_ *state, in Value, a args) Value {
	a.most("default", 2, "default_value", "boolean")
	if in.kind == Undefined || a.get(1, "boolean", BoolValue(false)).IsTrue() && !in.IsTrue() {
		return a.get(0, "default_value", StringValue(""))
	}
	return in
}

func filterIndent(_ *state, in Value, a args) Value {
	a.most("indent", 3, "width", "first", "blank")
	width := a.get(0, "width", IntValue(4))
	pad := width.s
	if width.kind == Int {
		pad = repeat(" ", width.n)
	}
	first, blank := a.get(1, "first", BoolValue(false)).IsTrue(), a.get(2, "blank", BoolValue(false)).IsTrue()
	// The filter adds a line end, splits, and so keeps a last empty line.
	lines := splitLines(str(in)+"\n", false)
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
	return StringValue(b.String())
}

func filterJoin(_ *state, in Value, a args) Value {
	a.most("join", 2, "d", "attribute")
	sep := str(a.get(0, "d", StringValue("")))
	by := a.get(1, "attribute", NoneValue())
	var b []byte
	for i, v := range iterate(in) {
		if i > 0 {
			b = append(b, sep...)
		}
		if by.kind != None {
			v = byPath(v, by)
		}
		b = appendStr(b, v)
	}
	return StringValue(string(b))
}

func nth(in Value, i int64, what string) Value {
	if in.kind == String {
		return charAt(in.s, i)
	}
	items := iterate(in)
	if k := wrap(i, len(items)); k >= 0 {
		return items[k]
	}
	return Value{s: "no " + what + " item, sequence was empty"}
}

func filterReverse(_ *state, in Value, _ args) Value {
	if in.kind == String {
		return StringValue(sliceString(in.s, runeCount(in.s), int64(runeCount(in.s))-1, -1, -1))
	}
	items := iterate(in)
	out := make([]Value, len(items))
	for i, v := range items {
		out[len(items)-1-i] = v
	}
	return ListValue(out)
}

func replace(s, old, repl string, n int) string {
	if len(repl) > len(old) {
		checkSize(len(s) + strings.Count(s, old)*len(repl))
	}
	return strings.Replace(s, old, repl, n)
}

// upper and lower are str.upper and str.lower, which know characters that
// become several and the final sigma.
func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

func isASCII(s string) bool { return runeCount(s) == len(s) }

func capitalize(s string) string {
	if s == "" {
		return s
	}
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToTitle(r)) + lower(s[n:])
}

// titleFilter is Jinja's title: words start after white space, hyphens and
// opening brackets.
func titleFilter(s string) string {
	var b strings.Builder
	start := true
	for _, r := range s {
		switch {
		case start:
			b.WriteRune(unicode.ToUpper(r))
		default:
			b.WriteRune(unicode.ToLower(r))
		}
		start = isPyWhite(r) || strings.ContainsRune("-({[<", r)
	}
	return b.String()
}
