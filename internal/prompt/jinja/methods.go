package jinja

import (
	"strings"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

var strMethods = map[string]method{
	"strip":  func(_ *state, v value.Value, a args) value.Value { return stripped(v, a, true, true) },
	"lstrip": func(_ *state, v value.Value, a args) value.Value { return stripped(v, a, true, false) },
	"rstrip": func(_ *state, v value.Value, a args) value.Value { return stripped(v, a, false, true) },
	"split":  func(_ *state, v value.Value, a args) value.Value { return strSplit(v, a, false) },
	"rsplit": func(_ *state, v value.Value, a args) value.Value { return strSplit(v, a, true) },
	"splitlines": func(_ *state, v value.Value, a args) value.Value {
		return stringList(splitLines(v.Str(), a.flag(0, "keepends")))
	},
	"startswith": func(_ *state, v value.Value, a args) value.Value { return affix("startswith", v, a, strings.HasPrefix) },
	"endswith":   func(_ *state, v value.Value, a args) value.Value { return affix("endswith", v, a, strings.HasSuffix) },
	"replace": func(_ *state, v value.Value, a args) value.Value {
		return value.String(replace(v.Str(), a.strArg("replace", 0), a.strArg("replace", 1), int(a.intArg("replace", 2, "count", -1))))
	},
	"removeprefix": func(_ *state, v value.Value, a args) value.Value {
		return value.String(strings.TrimPrefix(v.Str(), a.strArg("removeprefix", 0)))
	},
	"removesuffix": func(_ *state, v value.Value, a args) value.Value {
		return value.String(strings.TrimSuffix(v.Str(), a.strArg("removesuffix", 0)))
	},
	"lower":      func(_ *state, v value.Value, _ args) value.Value { return value.String(lower(v.Str())) },
	"upper":      func(_ *state, v value.Value, _ args) value.Value { return value.String(upper(v.Str())) },
	"capitalize": func(_ *state, v value.Value, _ args) value.Value { return value.String(capitalize(v.Str())) },
	"title":      func(_ *state, v value.Value, _ args) value.Value { return value.String(pyTitle(v.Str())) },
	"find": func(_ *state, v value.Value, a args) value.Value {
		a.most("find", 1)
		return value.Int(charIndex(v.Str(), strings.Index(v.Str(), a.strArg("find", 0))))
	},
	"rfind": func(_ *state, v value.Value, a args) value.Value {
		a.most("rfind", 1)
		return value.Int(charIndex(v.Str(), strings.LastIndex(v.Str(), a.strArg("rfind", 0))))
	},
	"index": func(_ *state, v value.Value, a args) value.Value {
		a.most("index", 1)
		i := charIndex(v.Str(), strings.Index(v.Str(), a.strArg("index", 0)))
		if i < 0 {
			value.Raise("substring not found")
		}
		return value.Int(i)
	},
	"count": func(_ *state, v value.Value, a args) value.Value {
		a.most("count", 1)
		return value.Int(int64(strings.Count(v.Str(), a.strArg("count", 0))))
	},
	"join": func(st *state, v value.Value, a args) value.Value {
		a.most("join", 1)
		items := st.iterate(a.get(0, "", value.Value{}))
		var b []byte
		for i, it := range items {
			if it.Kind() != value.KindString {
				value.Raise("join: item %d is a %s", i, it.Kind())
			}
			if i > 0 {
				b = append(b, v.Str()...)
			}
			b = append(b, it.Str()...)
			value.CheckSize(len(b))
		}
		return value.String(string(b))
	},
}

func stripped(v value.Value, a args, left, right bool) value.Value {
	a.most("strip", 1)
	return value.String(strip(v.Str(), a.get(0, "", value.None()), left, right))
}

func affix(what string, v value.Value, a args, has func(s, affix string) bool) value.Value {
	a.most(what, 1)
	arg := a.get(0, "", value.Value{})
	if arg.Kind() == value.KindTuple {
		for _, it := range arg.Items() {
			if it.Kind() == value.KindString && has(v.Str(), it.Str()) {
				return value.Bool(true)
			}
		}
		return value.Bool(false)
	}
	return value.Bool(has(v.Str(), a.strArg(what, 0)))
}

func charIndex(s string, i int) int64 {
	if i < 0 {
		return -1
	}
	return int64(value.RuneCount(s[:i]))
}

func stringList(parts []string) value.Value {
	out := make([]value.Value, len(parts))
	for i, p := range parts {
		out[i] = value.String(p)
	}
	return value.List(out)
}

func strSplit(v value.Value, a args, fromRight bool) value.Value {
	a.most("split", 2, "sep", "maxsplit")
	sep := a.get(0, "sep", value.None())
	n := int(a.intArg("split", 1, "maxsplit", -1))
	if sep.Kind() == value.KindNone {
		return stringList(splitWhite(v.Str(), n, fromRight))
	}
	if sep.Kind() != value.KindString || sep.Str() == "" {
		value.Raise("split: separator is empty or no str")
	}
	if n < 0 {
		return stringList(strings.Split(v.Str(), sep.Str()))
	}
	if !fromRight {
		return stringList(strings.SplitN(v.Str(), sep.Str(), n+1))
	}
	parts := strings.Split(v.Str(), sep.Str())
	if extra := len(parts) - n - 1; extra > 0 {
		parts = append([]string{strings.Join(parts[:extra+1], sep.Str())}, parts[extra+1:]...)
	}
	return stringList(parts)
}
