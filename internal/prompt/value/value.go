package value

import (
	"errors"
	"math"
	"strconv"
	"unsafe"
)

// MaxSize is the maximum size of one value, in bytes. It exceeds the size of every prompt.
const MaxSize = 16 << 20

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

// Value is a Python value in 24 bytes. It is small because request bodies decode to many values.
// The zero Value is undefined.
type Value struct {
	kind   Kind
	markup bool // of a String: it is a Markup
	// n is the number of a Bool or Int, the bits of a Float, and otherwise the length of the data
	// at p.
	n int64
	// p points at the bytes of a String or a Big, at the name of an Undefined, at the members of a
	// List, a Tuple or IDs, at a *Dict, or at the any of an Opaque.
	p unsafe.Pointer
}

// Undefined returns Jinja's undefined. name is the name that was not found.
func Undefined(name string) Value { return text(KindUndefined, name) }

func text(k Kind, s string) Value {
	return Value{kind: k, n: int64(len(s)), p: unsafe.Pointer(unsafe.StringData(s))}
}

// str returns the text of a value made by text.
func (v Value) str() string { return unsafe.String((*byte)(v.p), int(v.n)) }

func sequence(k Kind, items []Value) Value {
	return Value{kind: k, n: int64(len(items)), p: unsafe.Pointer(unsafe.SliceData(items))}
}

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
func Big(digits string) Value { return text(KindBig, digits) }

// Float returns a float.
func Float(f float64) Value { return Value{kind: KindFloat, n: int64(math.Float64bits(f))} }

// String returns a str. The bytes must stay unchanged while the Value is in
// use.
func String(s string) Value { return text(KindString, s) }

// List returns a list; it takes items over.
func List(items []Value) Value { return sequence(KindList, items) }

// Tuple returns a tuple; it takes items over.
func Tuple(items []Value) Value { return sequence(KindTuple, items) }

// FromDict returns a dict; it takes d over.
func FromDict(d *Dict) Value { return Value{kind: KindDict, p: unsafe.Pointer(d)} }

// IDs returns a list of token ids and takes ownership of ids. Templates do not support it.
func IDs(ids []uint32) Value {
	return Value{kind: KindIDs, n: int64(len(ids)), p: unsafe.Pointer(unsafe.SliceData(ids))}
}

// Opaque returns a value that only the renderer understands.
func Opaque(k Kind, ref any) Value { return Value{kind: k, p: unsafe.Pointer(&ref)} }

// Kind returns the value's type.
func (v Value) Kind() Kind { return v.kind }

// Str returns the text of a String, "" for other kinds.
func (v Value) Str() string {
	if v.kind == KindString {
		return v.str()
	}
	return ""
}

// Name returns the name that was missing of an Undefined, "" for other kinds.
func (v Value) Name() string {
	if v.kind == KindUndefined {
		return v.str()
	}
	return ""
}

// Items returns the members of a List or Tuple, nil for other kinds.
func (v Value) Items() []Value {
	if v.kind == KindList || v.kind == KindTuple {
		return unsafe.Slice((*Value)(v.p), int(v.n))
	}
	return nil
}

// Dict returns the dict, nil for other kinds.
func (v Value) Dict() *Dict {
	if v.kind == KindDict {
		return (*Dict)(v.p)
	}
	return nil
}

// IDs returns the numbers of a KindIDs, nil for other kinds.
func (v Value) IDs() []uint32 {
	if v.kind == KindIDs {
		return unsafe.Slice((*uint32)(v.p), int(v.n))
	}
	return nil
}

// Ref returns the value passed to Opaque, or nil for other kinds.
func (v Value) Ref() any {
	switch v.kind {
	case KindFunction, KindNamespace, KindLoop:
		return *(*any)(v.p)
	}
	return nil
}

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
		return v.n > 0
	case KindList, KindTuple:
		return v.n > 0
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
		f, err := strconv.ParseFloat(v.str(), 64)
		return f, err == nil
	}
	return 0, false
}

// Size is the size of a Value itself, in bytes.
const Size = int(unsafe.Sizeof(Value{}))

// Weight is the memory in bytes that v refers to directly: the bytes of a str,
// the members of a list, the entries of a dict.
func (v Value) Weight() int {
	switch v.kind {
	case KindString, KindBig:
		return int(v.n)
	case KindList, KindTuple:
		return int(v.n) * Size
	case KindDict:
		return v.Dict().Len() * 2 * Size
	}
	return 0
}

// PartOf reports whether v shares the memory of another value: it is that value, or a part of its
// bytes or members.
func (v Value) PartOf(of Value) bool {
	if v.n == 0 && v.kind != KindDict || of.p == nil {
		return v.Weight() == 0
	}
	if v.kind == KindDict || of.kind == KindDict {
		return v.p == of.p
	}
	return uintptr(v.p) >= uintptr(of.p) && uintptr(v.p) < uintptr(of.p)+uintptr(of.Weight())
}
