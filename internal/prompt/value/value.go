package value

import (
	"errors"
	"math"
	"strconv"
)

// MaxSize bounds what one value may grow to, in bytes: more than every prompt.
const MaxSize = 64 << 20

// ErrBounds is wrapped when a document, a template or a rendering exceeds its
// bounds.
var ErrBounds = errors.New("jinja: exceeds its bounds")

// Kind is the Python type of a Value.
type Kind uint8

// Kinds.
const (
	KindUndefined Kind = iota // Jinja's undefined
	KindNone
	KindBool
	KindInt
	KindFloat
	KindBig // an integer beyond 64 bits, as its digits
	KindString
	KindList
	KindTuple
	KindDict
	KindFunction  // Opaque: something that templates can call
	KindNamespace // Opaque: a namespace of a template
	KindLoop      // Opaque: the loop variable
	KindIDs       // a list of numbers that are token ids
)

var kindNames = [...]string{"undefined", "NoneType", "bool", "int", "float", "int", "str", "list", "tuple", "dict", "function", "namespace", "loop", "list"}

// String returns the kind's Python name.
func (k Kind) String() string { return kindNames[k] }

// Value is a Python value. The zero Value is undefined.
type Value struct {
	kind Kind
	n    int64  // Bool, Int; Float as its bits
	s    string // String, Big; for Undefined the name that was missing
	ref  any    // *[]Value, *Dict, *[]uint32, or what Opaque was given
}

// Undefined returns Jinja's undefined under the name that was missing.
func Undefined(name string) Value { return Value{s: name} }

// None is Python's None.
func None() Value { return Value{kind: KindNone} }

// Bool returns a bool.
func Bool(b bool) Value {
	if b {
		return Value{kind: KindBool, n: 1}
	}
	return Value{kind: KindBool}
}

// Int returns an int.
func Int(n int64) Value { return Value{kind: KindInt, n: n} }

// Big returns an int beyond 64 bits by its decimal digits.
func Big(digits string) Value { return Value{kind: KindBig, s: digits} }

// Float returns a float.
func Float(f float64) Value { return Value{kind: KindFloat, n: int64(math.Float64bits(f))} }

// String returns a str. The bytes must stay unchanged while the Value is in
// use.
func String(s string) Value { return Value{kind: KindString, s: s} }

// List returns a list; it takes items over.
func List(items []Value) Value { return Value{kind: KindList, ref: &items} }

// Tuple returns a tuple; it takes items over.
func Tuple(items []Value) Value { return Value{kind: KindTuple, ref: &items} }

// FromDict returns a dict; it takes d over.
func FromDict(d *Dict) Value { return Value{kind: KindDict, ref: d} }

// IDs returns a list of token ids; it takes ids over. Templates do not know
// them.
func IDs(ids []uint32) Value { return Value{kind: KindIDs, ref: &ids} }

// Opaque returns a value that only the renderer understands.
func Opaque(k Kind, ref any) Value { return Value{kind: k, ref: ref} }

// Kind returns the value's type.
func (v Value) Kind() Kind { return v.kind }

// Str returns the text of a String, "" for other kinds.
func (v Value) Str() string {
	if v.kind == KindString {
		return v.s
	}
	return ""
}

// Name returns the name that was missing of an Undefined, "" for other kinds.
func (v Value) Name() string {
	if v.kind == KindUndefined {
		return v.s
	}
	return ""
}

// Items returns the members of a List or Tuple, nil for other kinds.
func (v Value) Items() []Value {
	if v.kind == KindList || v.kind == KindTuple {
		return *v.ref.(*[]Value)
	}
	return nil
}

// Dict returns the dict, nil for other kinds.
func (v Value) Dict() *Dict {
	if v.kind == KindDict {
		return v.ref.(*Dict)
	}
	return nil
}

// IDs returns the numbers of a KindIDs, nil for other kinds.
func (v Value) IDs() []uint32 {
	if v.kind == KindIDs {
		return *v.ref.(*[]uint32)
	}
	return nil
}

// Ref returns what Opaque was given.
func (v Value) Ref() any { return v.ref }

// IsTrue is Python's truth value.
func (v Value) IsTrue() bool {
	switch v.kind {
	case KindUndefined, KindNone:
		return false
	case KindBool, KindInt:
		return v.n != 0
	case KindFloat:
		return v.float() != 0
	case KindString:
		return v.s != ""
	case KindList, KindTuple:
		return len(v.Items()) > 0
	case KindDict:
		return v.Dict().Len() > 0
	}
	return true
}

func (v Value) float() float64 { return math.Float64frombits(uint64(v.n)) }

// Int returns the number of an Int.
func (v Value) Int() (int64, bool) { return v.n, v.kind == KindInt }

// Integral returns the number of an Int or a Bool, which Python takes for one.
func (v Value) Integral() (int64, bool) { return v.n, v.kind == KindInt || v.kind == KindBool }

// Number returns a numeric value as a float.
func (v Value) Number() (float64, bool) {
	switch v.kind {
	case KindBool, KindInt:
		return float64(v.n), true
	case KindFloat:
		return v.float(), true
	case KindBig:
		f, err := strconv.ParseFloat(v.s, 64)
		return f, err == nil
	}
	return 0, false
}
