package value

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Append appends str(v).
func (v Value) Append(dst []byte) []byte {
	switch v.kind {
	case KindUndefined:
		return dst
	case KindString:
		return append(dst, v.str()...)
	}
	return v.AppendRepr(dst)
}

// Text is Python's str(v).
func (v Value) Text() string {
	if v.kind == KindString {
		return v.str()
	}
	return string(v.Append(nil))
}

// AppendRepr appends repr(v).
func (v Value) AppendRepr(dst []byte) []byte { return v.appendRepr(dst, 0) }

func (v Value) appendRepr(dst []byte, depth int) []byte {
	if depth > maxDepth {
		RaiseAs(ErrBounds, "value nested too deep is printed")
	}
	switch v.kind {
	case KindUndefined:
		return append(dst, "Undefined"...)
	case KindNone:
		return append(dst, "None"...)
	case KindBool:
		if v.n != 0 {
			return append(dst, "True"...)
		}
		return append(dst, "False"...)
	case KindInt:
		return strconv.AppendInt(dst, v.n, 10)
	case KindFloat:
		return appendFloat(dst, v.float())
	case KindBig:
		return append(dst, v.str()...)
	case KindString:
		if v.markup {
			return append(appendReprString(append(dst, "Markup("...), v.str()), ')')
		}
		return appendReprString(dst, v.str())
	case KindList:
		return append(appendReprs(append(dst, '['), v.Items(), depth+1), ']')
	case KindTuple:
		dst = appendReprs(append(dst, '('), v.Items(), depth+1)
		if len(v.Items()) == 1 {
			dst = append(dst, ',')
		}
		return append(dst, ')')
	case KindDict:
		dst = append(dst, '{')
		for i, e := range v.Dict().entries {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = append(e.key.appendRepr(dst, depth+1), ": "...)
			dst = e.val.appendRepr(dst, depth+1)
			CheckSize(len(dst))
		}
		return append(dst, '}')
	}
	Raise("a %s is printed", v.kind)
	return dst
}

func appendReprs(dst []byte, items []Value, depth int) []byte {
	for i, it := range items {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = it.appendRepr(dst, depth)
		CheckSize(len(dst))
	}
	return dst
}

// appendReprString quotes like Python: single quotes unless only those occur.
func appendReprString(dst []byte, s string) []byte {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	dst = append(dst, quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\r':
			dst = append(dst, `\r`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case strconv.IsPrint(r):
			dst = utf8.AppendRune(dst, r)
		case r < 0x100:
			dst = append(dst, `\x`...)
			dst = AppendHex(dst, uint64(r), 2)
		case r < 0x10000:
			dst = append(dst, `\u`...)
			dst = AppendHex(dst, uint64(r), 4)
		default:
			dst = append(dst, `\U`...)
			dst = AppendHex(dst, uint64(r), 8)
		}
	}
	return append(dst, quote)
}

// AppendHex appends n in hexadecimal with leading zeros up to width digits.
func AppendHex(dst []byte, n uint64, width int) []byte {
	s := strconv.FormatUint(n, 16)
	for range width - len(s) {
		dst = append(dst, '0')
	}
	return append(dst, s...)
}

// appendFloat appends repr(f).
func appendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	case math.IsNaN(f):
		return append(dst, "nan"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	for _, c := range dst[start:] {
		if c == '.' {
			return dst
		}
	}
	return append(dst, ".0"...)
}
