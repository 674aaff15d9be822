package jinja

import (
	"strings"
	"unicode"
)

var strMethods = map[string]method{
	"strip":  func(_ *state, v Value, a args) Value { return stripped(v, a, true, true) },
	"lstrip": func(_ *state, v Value, a args) Value { return stripped(v, a, true, false) },
	"rstrip": func(_ *state, v Value, a args) Value { return stripped(v, a, false, true) },
	"split":  func(_ *state, v Value, a args) Value { return strSplit(v, a, false) },
	"rsplit": func(_ *state, v Value, a args) Value { return strSplit(v, a, true) },
	"splitlines": func(_ *state, v Value, a args) Value {
		return stringList(splitLines(v.s, a.get(0, "keepends", BoolValue(false)).IsTrue()))
	},
	"startswith": func(_ *state, v Value, a args) Value { return affix("startswith", v, a, strings.HasPrefix) },
	"endswith":   func(_ *state, v Value, a args) Value { return affix("endswith", v, a, strings.HasSuffix) },
	"replace": func(_ *state, v Value, a args) Value {
		return StringValue(replace(v.s, a.strArg("replace", 0), a.strArg("replace", 1), int(a.intArg("replace", 2, "count", -1))))
	},
	"removeprefix": func(_ *state, v Value, a args) Value {
		return StringValue(strings.TrimPrefix(v.s, a.strArg("removeprefix", 0)))
	},
	"removesuffix": func(_ *state, v Value, a args) Value {
		return StringValue(strings.TrimSuffix(v.s, a.strArg("removesuffix", 0)))
	},
	"lower":      func(_ *state, v Value, _ args) Value { return StringValue(lower(v.s)) },
	"upper":      func(_ *state, v Value, _ args) Value { return StringValue(upper(v.s)) },
	"capitalize": func(_ *state, v Value, _ args) Value { return StringValue(capitalize(v.s)) },
	"title":      func(_ *state, v Value, _ args) Value { return StringValue(pyTitle(v.s)) },
	"find": func(_ *state, v Value, a args) Value {
		a.most("find", 1)
		return IntValue(charIndex(v.s, strings.Index(v.s, a.strArg("find", 0))))
	},
	"rfind": func(_ *state, v Value, a args) Value {
		a.most("rfind", 1)
		return IntValue(charIndex(v.s, strings.LastIndex(v.s, a.strArg("rfind", 0))))
	},
	"index": func(_ *state, v Value, a args) Value {
		a.most("index", 1)
		i := charIndex(v.s, strings.Index(v.s, a.strArg("index", 0)))
		if i < 0 {
			fail("substring not found")
		}
		return IntValue(i)
	},
	"count": func(_ *state, v Value, a args) Value {
		a.most("count", 1)
		return IntValue(int64(strings.Count(v.s, a.strArg("count", 0))))
	},
	"join": func(_ *state, v Value, a args) Value {
		a.most("join", 1)
		items := iterate(a.get(0, "", Value{}))
		var b []byte
		for i, it := range items {
			if it.kind != String {
				fail("join: item %d is a %s", i, it.kind)
			}
			if i > 0 {
				b = append(b, v.s...)
			}
			b = append(b, it.s...)
		}
		return StringValue(string(b))
	},
	"partition":  func(_ *state, v Value, a args) Value { return partition(v.s, a.strArg("partition", 0), false) },
	"rpartition": func(_ *state, v Value, a args) Value { return partition(v.s, a.strArg("rpartition", 0), true) },
	"isdigit":    func(_ *state, v Value, _ args) Value { return allRunes(v.s, unicode.IsDigit) },
	"isdecimal":  func(_ *state, v Value, _ args) Value { return allRunes(v.s, unicode.IsDigit) },
	"isnumeric":  func(_ *state, v Value, _ args) Value { return allRunes(v.s, unicode.IsNumber) },
	"isalpha":    func(_ *state, v Value, _ args) Value { return allRunes(v.s, unicode.IsLetter) },
	"isspace":    func(_ *state, v Value, _ args) Value { return allRunes(v.s, isPyWhite) },
	"isalnum": func(_ *state, v Value, _ args) Value {
		return allRunes(v.s, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })
	},
	"islower": func(_ *state, v Value, _ args) Value { return BoolValue(cased(v.s, unicode.IsUpper)) },
	"isupper": func(_ *state, v Value, _ args) Value { return BoolValue(cased(v.s, unicode.IsLower)) },
	"zfill": func(_ *state, v Value, a args) Value {
		sign, digits := "", v.s
		if strings.HasPrefix(v.s, "-") || strings.HasPrefix(v.s, "+") {
			sign, digits = v.s[:1], v.s[1:]
		}
		return StringValue(sign + repeat("0", a.intArg("zfill", 0, "width", 0)-int64(runeCount(v.s))) + digits)
	},
	"format": func(_ *state, v Value, a args) Value { return StringValue(braceFormat(v.s, a)) },
}

func stripped(v Value, a args, left, right bool) Value {
	a.most("strip", 1)
	return StringValue(strip(v.s, a.get(0, "", NoneValue()), left, right))
}

// strip removes white space, or the characters of chars, from the ends.
func strip(s string, chars Value, left, right bool) string {
	cut := isPyWhite
	switch chars.kind {
	case None:
	case String:
		cut = func(r rune) bool { return strings.ContainsRune(chars.s, r) }
	default:
		fail("strip argument is a %s", chars.kind)
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s
}

func affix(what string, v Value, a args, has func(s, affix string) bool) Value {
	a.most(what, 1)
	arg := a.get(0, "", Value{})
	if arg.kind == Tuple {
		for _, it := range arg.Items() {
			if it.kind == String && has(v.s, it.s) {
				return BoolValue(true)
			}
		}
		return BoolValue(false)
	}
	return BoolValue(has(v.s, a.strArg(what, 0)))
}

func charIndex(s string, i int) int64 {
	if i < 0 {
		return -1
	}
	return int64(runeCount(s[:i]))
}

func stringList(parts []string) Value {
	out := make([]Value, len(parts))
	for i, p := range parts {
		out[i] = StringValue(p)
	}
	return ListValue(out)
}

func strSplit(v Value, a args, fromRight bool) Value {
	a.most("split", 2, "sep", "maxsplit")
	sep := a.get(0, "sep", NoneValue())
	n := int(a.intArg("split", 1, "maxsplit", -1))
	if sep.kind == None {
		return stringList(splitWhite(v.s, n, fromRight))
	}
	if sep.kind != String || sep.s == "" {
		fail("split: separator is empty or no str")
	}
	if n < 0 {
		return stringList(strings.Split(v.s, sep.s))
	}
	if !fromRight {
		return stringList(strings.SplitN(v.s, sep.s, n+1))
	}
	parts := strings.Split(v.s, sep.s)
	if extra := len(parts) - n - 1; extra > 0 {
		parts = append([]string{strings.Join(parts[:extra+1], sep.s)}, parts[extra+1:]...)
	}
	return stringList(parts)
}

// splitWhite splits at runs of white space, n times at most if n is not
// negative.
func splitWhite(s string, n int, fromRight bool) []string {
	if n < 0 {
		return strings.FieldsFunc(s, isPyWhite)
	}
	var out []string
	for {
		if fromRight {
			s = strings.TrimRightFunc(s, isPyWhite)
		} else {
			s = strings.TrimLeftFunc(s, isPyWhite)
		}
		if s == "" {
			break
		}
		cut := -1
		if len(out) < n && fromRight {
			cut = strings.LastIndexFunc(s, isPyWhite)
		} else if len(out) < n {
			cut = strings.IndexFunc(s, isPyWhite)
		}
		switch {
		case cut < 0:
			out = append(out, s)
			s = ""
		case fromRight:
			rest := s[cut:]
			out = append(out, strings.TrimLeftFunc(rest, isPyWhite))
			s = s[:cut]
		default:
			out = append(out, s[:cut])
			s = s[cut:]
		}
	}
	if fromRight {
		for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
			out[i], out[j] = out[j], out[i]
		}
	}
	return out
}

// splitLines is str.splitlines.
func splitLines(s string, keep bool) []string {
	var out []string
	for s != "" {
		i := strings.IndexAny(s, "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029")
		if i < 0 {
			return append(out, s)
		}
		end := i + 1
		switch {
		case strings.HasPrefix(s[i:], "\r\n"), strings.HasPrefix(s[i:], "\u0085"):
			end = i + 2
		case s[i] == 0xe2:
			end = i + 3
		}
		if keep {
			i = end
		}
		out = append(out, s[:i])
		s = s[end:]
	}
	return out
}

func partition(s, sep string, last bool) Value {
	i := strings.Index(s, sep)
	if last {
		i = strings.LastIndex(s, sep)
	}
	parts := []Value{StringValue(s), StringValue(""), StringValue("")}
	switch {
	case i >= 0:
		parts = []Value{StringValue(s[:i]), StringValue(sep), StringValue(s[i+len(sep):])}
	case last:
		parts[0], parts[2] = parts[2], parts[0]
	}
	return tupleValue(parts)
}

func allRunes(s string, is func(rune) bool) Value {
	return BoolValue(s != "" && strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0)
}

// pyTitle is str.title: letters after anything that is no letter are upper.
func pyTitle(s string) string {
	prev := false
	return strings.Map(func(r rune) rune {
		was := prev
		prev = unicode.IsLetter(r)
		if was {
			return unicode.ToLower(r)
		}
		return unicode.ToTitle(r)
	}, s)
}

// braceFormat is str.format for plain {}, {0} and {name} fields.
func braceFormat(s string, a args) string {
	var b []byte
	auto := 0
	for {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			return string(append(b, s...))
		}
		b = append(b, s[:i]...)
		if i+1 < len(s) && s[i+1] == s[i] {
			b = append(b, s[i])
			s = s[i+2:]
			continue
		}
		end := strings.IndexByte(s[i:], '}')
		if s[i] == '}' || end < 0 {
			fail("format: single brace")
		}
		field := s[i+1 : i+end]
		s = s[i+end+1:]
		if strings.ContainsAny(field, ".[!:") {
			failWith(ErrUnsupported, "format field %q", field)
		}
		var v Value
		switch {
		case field == "":
			v = a.get(auto, "", Value{})
			auto++
		case isDigit(field[0]):
			v = a.get(int(field[0]-'0'), "", Value{})
		default:
			v = a.get(-1, field, Value{})
		}
		if v.kind == Undefined {
			fail("format: no argument %q", field)
		}
		b = appendStr(b, v)
	}
}
