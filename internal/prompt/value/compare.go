package value

import (
	"cmp"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/prompt/internal/failure"
)

// Equal is Python's ==.
func Equal(a, b Value) bool {
	switch {
	case a.kind == KindString && b.kind == KindString:
		return a.s == b.s
	case a.kind <= KindNone || b.kind <= KindNone:
		return a.kind == b.kind
	case a.kind == KindBig && b.kind == KindBig:
		return a.s == b.s
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
			if !Equal(x[i], y[i]) {
				return false
			}
		}
		return true
	case KindDict:
		return a.Dict().equal(b.Dict())
	}
	return a.ref == b.ref
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
		return strings.Compare(a.s, b.s)
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
	failure.Raise("a %s and a %s have no order", a.kind, b.kind)
	return 0
}

// Contains is "v in of".
func Contains(of, v Value) bool {
	switch of.kind {
	case KindUndefined:
		return false
	case KindString:
		if v.kind != KindString {
			failure.Raise("'in <str>' requires a str, not %s", v.kind)
		}
		return strings.Contains(of.s, v.s)
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
	failure.Raise("a %s is not iterable", of.kind)
	return false
}
