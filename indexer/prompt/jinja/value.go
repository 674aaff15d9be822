package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Kind is the Python type of a Value.
type Kind uint8

// Kinds.
const (
	Undefined Kind = iota // Jinja's undefined
	None
	Bool
	Int
	Float
	Big // an integer beyond 64 bits, as its digits
	String
	List
	Tuple
	DictKind
	funcKind
	namespaceKind
	loopKind
	IDs // a list of numbers that are token ids (Decoder.PackIDs)
)

var kindNames = [...]string{"undefined", "NoneType", "bool", "int", "float", "int", "str", "list", "tuple", "dict", "function", "namespace", "loop", "list"}

// String returns the kind's Python name.
func (k Kind) String() string { return kindNames[k] }

// Value is a Python value. The zero Value is undefined. Lists and dicts are
// references and are not changed by templates.
type Value struct {
	kind Kind
	n    int64  // Bool, Int; Float as its bits
	s    string // String, Big; for Undefined the name that was missing
	ref  any    // *[]Value, *Dict, *function, *loop
}

// Constructors.

// NoneValue is Python's None.
func NoneValue() Value { return Value{kind: None} }

// BoolValue returns a bool.
func BoolValue(b bool) Value {
	if b {
		return Value{kind: Bool, n: 1}
	}
	return Value{kind: Bool}
}

// IntValue returns an int.
func IntValue(n int64) Value { return Value{kind: Int, n: n} }

// FloatValue returns a float.
func FloatValue(f float64) Value { return Value{kind: Float, n: int64(math.Float64bits(f))} }

// StringValue returns a str. The bytes must stay unchanged while the Value is
// in use.
func StringValue(s string) Value { return Value{kind: String, s: s} }

// ListValue returns a list; it takes items over.
func ListValue(items []Value) Value { return Value{kind: List, ref: &items} }

func tupleValue(items []Value) Value { return Value{kind: Tuple, ref: &items} }

// DictValue returns a dict.
func DictValue(d *Dict) Value { return Value{kind: DictKind, ref: d} }

// Kind returns the value's type.
func (v Value) Kind() Kind { return v.kind }

// Str returns the text of a String, "" for other kinds.
func (v Value) Str() string {
	if v.kind == String {
		return v.s
	}
	return ""
}

// Items returns the members of a List or Tuple, nil for other kinds.
func (v Value) Items() []Value {
	if v.kind == List || v.kind == Tuple {
		return *v.ref.(*[]Value)
	}
	return nil
}

// Dict returns the dict, nil for other kinds.
func (v Value) Dict() *Dict {
	if v.kind == DictKind {
		return v.ref.(*Dict)
	}
	return nil
}

// IDs returns the numbers of an IDs value, nil for other kinds. They are valid
// until the decoder's next document.
func (v Value) IDs() []uint32 {
	if v.kind == IDs {
		return *v.ref.(*[]uint32)
	}
	return nil
}

// IsTrue is Python's truth value.
func (v Value) IsTrue() bool {
	switch v.kind {
	case Undefined, None:
		return false
	case Bool, Int:
		return v.n != 0
	case Float:
		return v.float() != 0
	case String:
		return v.s != ""
	case List, Tuple:
		return len(v.Items()) > 0
	case DictKind:
		return v.Dict().Len() > 0
	}
	return true
}

func (v Value) float() float64 { return math.Float64frombits(uint64(v.n)) }

// number returns a numeric value as a float.
func (v Value) number() (float64, bool) {
	switch v.kind {
	case Bool, Int:
		return float64(v.n), true
	case Float:
		return v.float(), true
	case Big:
		f, err := strconv.ParseFloat(v.s, 64)
		return f, err == nil
	}
	return 0, false
}

// equal is Python's ==.
func equal(a, b Value) bool {
	switch {
	case a.kind == String && b.kind == String:
		return a.s == b.s
	case a.kind <= None || b.kind <= None:
		return a.kind == b.kind
	case a.kind == Big && b.kind == Big:
		return a.s == b.s
	}
	if x, ok := a.number(); ok {
		y, ok := b.number()
		if a.kind <= Int && b.kind <= Int {
			return ok && a.n == b.n
		}
		return ok && x == y
	}
	if a.kind != b.kind {
		return false
	}
	switch a.kind {
	case List, Tuple:
		x, y := a.Items(), b.Items()
		if len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equal(x[i], y[i]) {
				return false
			}
		}
		return true
	case DictKind:
		return a.Dict().equal(b.Dict())
	}
	return a.ref == b.ref
}

// appendStr appends str(v).
func appendStr(dst []byte, v Value) []byte {
	switch v.kind {
	case Undefined:
		return dst
	case String:
		return append(dst, v.s...)
	}
	return appendRepr(dst, v)
}

// str is Python's str(v).
func str(v Value) string {
	if v.kind == String {
		return v.s
	}
	return string(appendStr(nil, v))
}

// appendRepr appends repr(v).
func appendRepr(dst []byte, v Value) []byte {
	switch v.kind {
	case Undefined:
		return append(dst, "Undefined"...)
	case None:
		return append(dst, "None"...)
	case Bool:
		if v.n != 0 {
			return append(dst, "True"...)
		}
		return append(dst, "False"...)
	case Int:
		return strconv.AppendInt(dst, v.n, 10)
	case Float:
		return appendFloat(dst, v.float())
	case Big:
		return append(dst, v.s...)
	case String:
		return appendReprString(dst, v.s)
	case List:
		return append(appendReprs(append(dst, '['), v.Items()), ']')
	case Tuple:
		dst = appendReprs(append(dst, '('), v.Items())
		if len(v.Items()) == 1 {
			dst = append(dst, ',')
		}
		return append(dst, ')')
	case DictKind:
		dst = append(dst, '{')
		for i, e := range v.Dict().entries {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = append(appendRepr(dst, e.keyValue()), ": "...)
			dst = appendRepr(dst, e.val)
		}
		return append(dst, '}')
	}
	fail("a %s is printed", v.kind)
	return dst
}

func appendReprs(dst []byte, items []Value) []byte {
	for i, it := range items {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = appendRepr(dst, it)
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
			dst = appendHex(dst, uint64(r), 2)
		case r < 0x10000:
			dst = append(dst, `\u`...)
			dst = appendHex(dst, uint64(r), 4)
		default:
			dst = append(dst, `\U`...)
			dst = appendHex(dst, uint64(r), 8)
		}
	}
	return append(dst, quote)
}

func appendHex(dst []byte, n uint64, width int) []byte {
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

// Int returns the number of an Int.
func (v Value) Int() (int64, bool) { return v.n, v.kind == Int }

// IsSpace tells whether Python strips r as white space.
func IsSpace(r rune) bool { return isPyWhite(r) }

// Number returns a numeric value as a float, 0 for other kinds.
func (v Value) Number() float64 {
	f, _ := v.number()
	return f
}
