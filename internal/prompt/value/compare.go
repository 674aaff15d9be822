package value

import (
	"cmp"
	"strings"
)

// Meter bounds the work of comparisons. A small value may contain another one many times and take
// long to compare. When the budget is used up, comparisons end with ErrBounds. Not safe for
// concurrent use.
type Meter struct {
	Left  int // remaining budget, in values or runs of 64 bytes
	depth int
}

// maxCompared bounds one comparison that no Meter is given for.
const maxCompared = 1 << 20

func meter() *Meter { return &Meter{Left: maxCompared} }

// spend counts a value, and the bytes that it is compared by.
func (m *Meter) spend(bytes int) {
	if m.Left -= 1 + bytes/64; m.Left < 0 {
		RaiseAs(ErrBounds, "too many values are compared")
	}
}

func (m *Meter) enter() {
	if m.depth++; m.depth > maxDepth {
		RaiseAs(ErrBounds, "values nested too deep are compared")
	}
}

func (m *Meter) leave() { m.depth-- }

// Equal is Python's ==.
func (m *Meter) Equal(a, b Value) bool {
	m.spend(0)
	switch {
	case a.kind == KindString && b.kind == KindString, a.kind == KindBig && b.kind == KindBig:
		if a.n == b.n {
			m.spend(int(a.n))
		}
		return a.str() == b.str()
	case a.kind <= KindNone || b.kind <= KindNone:
		return a.kind == b.kind
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
	m.enter()
	defer m.leave()
	switch a.kind {
	case KindList, KindTuple:
		x, y := a.Items(), b.Items()
		if len(x) != len(y) {
			return false
		}
		for i := range x {
			if !m.Equal(x[i], y[i]) {
				return false
			}
		}
		return true
	case KindDict:
		return a.Dict().equal(b.Dict(), m)
	}
	return a.p == b.p
}

// Compare applies a comparison operator, "in" or "not in".
func (m *Meter) Compare(op string, a, b Value) bool {
	switch op {
	case "==":
		return m.Equal(a, b)
	case "!=":
		return !m.Equal(a, b)
	case "in":
		return m.Contains(b, a)
	case "not in":
		return !m.Contains(b, a)
	}
	c := m.Order(a, b)
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
func (m *Meter) Order(a, b Value) int {
	m.spend(0)
	if a.kind == KindString && b.kind == KindString {
		m.spend(int(min(a.n, b.n)))
		return strings.Compare(a.str(), b.str())
	}
	if x, ok := a.Number(); ok {
		if y, ok := b.Number(); ok {
			return cmp.Compare(x, y)
		}
	}
	if a.kind == b.kind && (a.kind == KindList || a.kind == KindTuple) {
		m.enter()
		defer m.leave()
		x, y := a.Items(), b.Items()
		for i := range min(len(x), len(y)) {
			if !m.Equal(x[i], y[i]) {
				return m.Order(x[i], y[i])
			}
		}
		return cmp.Compare(len(x), len(y))
	}
	Raise("a %s and a %s have no order", a.kind, b.kind)
	return 0
}

// Contains is "v in of".
func (m *Meter) Contains(of, v Value) bool {
	switch of.kind {
	case KindUndefined:
		return false
	case KindString:
		if v.kind != KindString {
			Raise("'in <str>' requires a str, not %s", v.kind)
		}
		m.spend(int(of.n))
		return strings.Contains(of.str(), v.str())
	case KindList, KindTuple:
		for _, it := range of.Items() {
			if m.Equal(it, v) {
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
