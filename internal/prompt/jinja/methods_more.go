package jinja

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// strMethodsMore are the methods of str that few chat templates call.
var strMethodsMore = map[string]method{
	"casefold":   notASCII("casefold", strings.ToLower),
	"swapcase":   notASCII("swapcase", swapCase),
	"partition":  func(_ *state, v value.Value, a args) value.Value { return partition(v, a, false) },
	"rpartition": func(_ *state, v value.Value, a args) value.Value { return partition(v, a, true) },
	"center":     func(_ *state, v value.Value, a args) value.Value { return padded("center", v, a) },
	"ljust":      func(_ *state, v value.Value, a args) value.Value { return padded("ljust", v, a) },
	"rjust":      func(_ *state, v value.Value, a args) value.Value { return padded("rjust", v, a) },
	"zfill":      func(_ *state, v value.Value, a args) value.Value { return zeroFilled(v, a) },
	"format":     func(_ *state, v value.Value, a args) value.Value { return value.String(formatted(v.Str(), a)) },
	"isascii":    func(_ *state, v value.Value, _ args) value.Value { return value.Bool(isASCII(v.Str())) },
	"isalpha":    allRunes(unicode.IsLetter),
	"isdecimal":  allRunes(unicode.IsDigit),
	"isdigit":    allRunes(isPyDigit),
	"isnumeric":  allRunes(unicode.IsNumber),
	"isalnum":    allRunes(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
	"isspace":    allRunes(value.IsSpace),
	"isupper":    func(_ *state, v value.Value, _ args) value.Value { return value.Bool(isCased(v.Str(), true)) },
	"islower":    func(_ *state, v value.Value, _ args) value.Value { return value.Bool(isCased(v.Str(), false)) },
}

// notASCII returns a method that is supported only for ASCII strings.
func notASCII(name string, f func(string) string) method {
	return func(_ *state, v value.Value, _ args) value.Value {
		if !isASCII(v.Str()) {
			value.RaiseAs(ErrUnsupported, "%s of other characters than ASCII", name)
		}
		return value.String(f(v.Str()))
	}
}

func swapCase(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsUpper(r) {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, s)
}

// allRunes is a predicate that holds for no empty str.
func allRunes(is func(rune) bool) method {
	return func(_ *state, v value.Value, _ args) value.Value {
		return value.Bool(v.Str() != "" && strings.IndexFunc(v.Str(), func(r rune) bool { return !is(r) }) < 0)
	}
}

// isPyDigit is str.isdigit: decimal digits, superscripts and the like.
func isPyDigit(r rune) bool {
	return unicode.IsDigit(r) || r == 0xb2 || r == 0xb3 || r == 0xb9 || r == 0x2070 || r >= 0x2074 && r <= 0x2079 || r >= 0x2080 && r <= 0x2089 ||
		r >= 0x2460 && r <= 0x2468 || r >= 0x2474 && r <= 0x247c || r >= 0x2488 && r <= 0x2490
}

// isCased is str.isupper and str.islower.
func isCased(s string, upper bool) bool {
	found := false
	for _, r := range s {
		switch {
		case unicode.IsTitle(r), unicode.IsUpper(r) != upper && (unicode.IsUpper(r) || unicode.IsLower(r)):
			return false
		case unicode.IsUpper(r) || unicode.IsLower(r):
			found = true
		}
	}
	return found
}

func partition(v value.Value, a args, last bool) value.Value {
	sep := a.strArg("partition", 0)
	if sep == "" {
		value.Raise("empty separator")
	}
	s, at := v.Str(), strings.Index(v.Str(), sep)
	if last {
		at = strings.LastIndex(s, sep)
	}
	head, mid, tail := s, "", ""
	switch {
	case at >= 0:
		head, mid, tail = s[:at], s[at:at+len(sep)], s[at+len(sep):]
	case last:
		head, tail = "", s
	}
	return value.Tuple([]value.Value{value.String(head), value.String(mid), value.String(tail)})
}

// padded is str.center, ljust and rjust.
func padded(how string, v value.Value, a args) value.Value {
	a.most(how, 2)
	width, fill := a.intArg(how, 0, "", 0), " "
	if len(a.pos) > 1 {
		if fill = a.strArg(how, 1); value.RuneCount(fill) != 1 {
			value.Raise("%s: the fill character is not one character", how)
		}
	}
	n := width - int64(value.RuneCount(v.Str()))
	if n <= 0 {
		return v
	}
	left := int64(0)
	switch how {
	case "rjust":
		left = n
	case "center":
		left = n/2 + n&width&1
	}
	value.CheckSize(int(min(n, 2*value.MaxSize)) + len(v.Str()))
	return value.String(value.Repeat(fill, left) + v.Str() + value.Repeat(fill, n-left))
}

func zeroFilled(v value.Value, a args) value.Value {
	n := a.intArg("zfill", 0, "", 0) - int64(value.RuneCount(v.Str()))
	sign, rest := "", v.Str()
	if rest != "" && (rest[0] == '-' || rest[0] == '+') {
		sign, rest = rest[:1], rest[1:]
	}
	return value.String(sign + value.Repeat("0", n) + rest)
}

// formatted is str.format without format specifications.
func formatted(format string, a args) string {
	var b []byte
	next := 0
	for format != "" {
		i := strings.IndexAny(format, "{}")
		if i < 0 {
			break
		}
		b = append(b, format[:i]...)
		if len(format) > i+1 && format[i+1] == format[i] {
			b = append(b, format[i])
			format = format[i+2:]
			continue
		}
		end := strings.IndexByte(format[i:], '}')
		if format[i] == '}' || end < 0 {
			value.Raise("unbalanced brace in a format string")
		}
		field := format[i+1 : i+end]
		format = format[i+end+1:]
		b = formatField(field, &next, a).Append(b)
		value.CheckSize(len(b))
	}
	return string(append(b, format...))
}

// formatField returns the argument that a replacement field names; next is the
// place of the next one without a name.
func formatField(field string, next *int, a args) value.Value {
	if strings.ContainsAny(field, ":!.[") {
		value.RaiseAs(ErrUnsupported, "format field {%.20s}", field)
	}
	i, err := strconv.Atoi(field)
	if field == "" {
		i, err = *next, nil
		*next++
	}
	if err != nil {
		v, ok := a.named(field)
		if !ok {
			value.Raise("format: no argument %.20q", field)
		}
		return v
	}
	if i < 0 || i >= len(a.pos) {
		value.Raise("format: no argument %d", i)
	}
	return a.pos[i]
}
