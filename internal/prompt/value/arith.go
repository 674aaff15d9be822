package value

import (
	"math"
	"strings"
)

// maxRepeat bounds the length of a repeated list.
const maxRepeat = 5_000_000

// Sum adds from left to right. Strings are concatenated with one allocation.
func Sum(vals []Value) Value {
	if AllPlain(vals) {
		return String(join(vals))
	}
	v := vals[0]
	for _, w := range vals[1:] {
		v = Add(v, w)
	}
	return v
}

// AllPlain reports whether every value is a str and none is a Markup.
func AllPlain(vals []Value) bool {
	for i := range vals {
		if vals[i].kind != KindString || vals[i].markup {
			return false
		}
	}
	return true
}

// join concatenates strings with one allocation.
func join(vals []Value) string {
	n := 0
	for i := range vals {
		n += len(vals[i].str())
	}
	CheckSize(n)
	var b strings.Builder
	b.Grow(n)
	for i := range vals {
		b.WriteString(vals[i].str())
	}
	return b.String()
}

// Add is a + b.
func Add(a, b Value) Value {
	switch {
	case a.kind == KindString && b.kind == KindString:
		if a.markup != b.markup {
			a, b = Escape(a), Escape(b)
		}
		CheckSize(len(a.str()) + len(b.str()))
		return String(a.str() + b.str()).As(a)
	case a.kind == b.kind && (a.kind == KindList || a.kind == KindTuple):
		CheckSize(48 * (len(a.Items()) + len(b.Items())))
		items := append(append(make([]Value, 0, len(a.Items())+len(b.Items())), a.Items()...), b.Items()...)
		return sequence(a.kind, items)
	}
	return arithmetic("+", a, b)
}

// CheckSize refuses values that outgrow every prompt.
func CheckSize(n int) {
	if n > MaxSize {
		RaiseAs(ErrBounds, "value of %d bytes", n)
	}
}

// Binary is a op b for the operators + - * / // % and **. The formatting of a
// str with % is not among them.
func Binary(op string, a, b Value) Value {
	if op == "*" {
		if a.kind == KindInt && (b.kind == KindString || b.kind == KindList) {
			a, b = b, a
		}
		if n, ok := b.Integral(); ok {
			switch a.kind {
			case KindString:
				return String(Repeat(a.str(), n)).As(a)
			case KindList:
				return repeatList(a, n)
			}
		}
	}
	return arithmetic(op, a, b)
}

// Sign returns -v if minus is true, and +v otherwise.
func Sign(v Value, minus bool) Value {
	if v.kind == KindFloat {
		if minus {
			return Float(-v.float())
		}
		return v
	}
	n, ok := v.Integral()
	if !ok {
		Raise("sign before a %s", v.kind)
	}
	if minus {
		n = -n
	}
	return Int(n)
}

// Repeat is s * n.
func Repeat(s string, n int64) string {
	if n <= 0 || s == "" {
		return ""
	}
	if n > MaxSize/int64(len(s)) {
		RaiseAs(ErrBounds, "string repeated %d times", n)
	}
	return strings.Repeat(s, int(n))
}

// repeatList is list * n.
func repeatList(v Value, n int64) Value {
	items := v.Items()
	if len(items) > 0 && n > maxRepeat/int64(len(items)) {
		RaiseAs(ErrBounds, "list repeated %d times", n)
	}
	var out []Value
	for range max(n, 0) {
		out = append(out, items...)
	}
	return List(out)
}

// arithmetic applies a numeric operator: + - * / // % or **.
func arithmetic(op string, a, b Value) Value {
	x, ok1 := a.Number()
	y, ok2 := b.Number()
	if !ok1 || !ok2 {
		if a.kind == KindUndefined || b.kind == KindUndefined {
			Raise("undefined value %q in %s", a.Name()+b.Name(), op)
		}
		Raise("unsupported operand types for %s: %s and %s", op, a.kind, b.kind)
	}
	if a.kind <= KindInt && b.kind <= KindInt && op != "/" {
		if v, ok := intArithmetic(op, a.n, b.n); ok {
			return v
		}
	}
	switch op {
	case "+":
		return Float(x + y)
	case "-":
		return Float(x - y)
	case "*":
		return Float(x * y)
	case "**":
		return Float(math.Pow(x, y))
	}
	if y == 0 {
		Raise("division by zero")
	}
	switch op {
	case "/":
		return Float(x / y)
	case "//":
		return Float(math.Floor(x / y))
	}
	m := math.Mod(x, y)
	if m != 0 && (m < 0) != (y < 0) {
		m += y
	}
	return Float(m)
}

func intArithmetic(op string, x, y int64) (Value, bool) {
	switch op {
	case "+":
		return Int(x + y), true
	case "-":
		return Int(x - y), true
	case "*":
		return Int(x * y), true
	case "**":
		if y < 0 {
			return Value{}, false
		}
		f := math.Pow(float64(x), float64(y))
		return Int(int64(f)), math.Abs(f) < 1<<53
	}
	if y == 0 {
		Raise("division by zero")
	}
	q, m := x/y, x%y
	if m != 0 && (m < 0) != (y < 0) {
		q, m = q-1, m+y
	}
	if op == "//" {
		return Int(q), true
	}
	return Int(m), true
}
