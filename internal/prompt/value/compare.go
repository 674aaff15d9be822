package value

import (
	"cmp"
	"strings"
)

// maxCompared bounds the values that one comparison looks at: a value may hold
// another many times.
const maxCompared = 1 << 20

// Equal is Python's ==.
func Equal(a, b Value) bool {
	left := maxCompared
	return equal(a, b, &left)
}

// equal is Equal within a bound.
func equal(a, b Value, left *int) bool {
	if *left--; *left < 0 {
		RaiseAs(ErrBounds, "comparison of %d values", maxCompared)
	}
	switch {
	case a.kind == KindString && b.kind == KindString:
		return a.str() == b.str()
	case a.kind <= KindNone || b.kind <= KindNone:
		return a.kind == b.kind
	case a.kind == KindBig && b.kind == KindBig:
		return a.str() == b.str()
	}
	if x, ok := a.Number(); ok {
		y, ok := b.Number()
		if a.kind <= KindInt && b.kind <= KindInt {
			return ok && a.n == b.n
		}
		return ok && x == y
	}
	if a.kind != b.kind {
		return false
	}
	switch a.kind {
	case KindList, KindTuple:
		x, y := a.Items(), b.Items()
		if len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equal(x[i], y[i], left) {
				return false
			}
		}
		return true
	case KindDict:
		return a.Dict().equal(b.Dict(), left)
	}
	return a.p == b.p
}

// Compare applies a comparison operator, "in" or "not in".
func Compare(op string, a, b Value) bool {
	switch op {
	case "==":
		return Equal(a, b)
	case "!=":
		return !Equal(a, b)
	case "in":
		return Contains(b, a)
	case "not in":
		return !Contains(b, a)
	}
	c := Order(a, b)
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

// Order compares two values that Python can order.
func Order(a, b Value) int {
	if a.kind == KindString && b.kind == KindString {
		return strings.Compare(a.str(), b.str())
	}
	if x, ok := a.Number(); ok {
		if y, ok := b.Number(); ok {
			return cmp.Compare(x, y)
		}
	}
	if a.kind == b.kind && (a.kind == KindList || a.kind == KindTuple) {
		x, y := a.Items(), b.Items()
		for i := range min(len(x), len(y)) {
			if !Equal(x[i], y[i]) {
				return Order(x[i], y[i])
			}
		}
		return cmp.Compare(len(x), len(y))
	}
	Raise("a %s and a %s have no order", a.kind, b.kind)
	return 0
}

// Contains is "v in of".
func Contains(of, v Value) bool {
	switch of.kind {
	case KindUndefined:
		return false
	case KindString:
		if v.kind != KindString {
			Raise("'in <str>' requires a str, not %s", v.kind)
		}
		return strings.Contains(of.str(), v.str())
	case KindList, KindTuple:
		for _, it := range of.Items() {
			if Equal(it, v) {
				return true
			}
		}
		return false
	case KindDict:
		_, ok := of.Dict().Lookup(v)
		return ok
	}
	Raise("a %s is not iterable", of.kind)
	return false
}
