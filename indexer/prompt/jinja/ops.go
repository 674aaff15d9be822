package jinja

import (
	"cmp"
	"math"
	"strings"
)

func allStrings(vals []Value) bool {
	for i := range vals {
		if vals[i].kind != String {
			return false
		}
	}
	return true
}

// join concatenates strings with one allocation.
func join(vals []Value) string {
	n := 0
	for i := range vals {
		n += len(vals[i].s)
	}
	checkSize(n)
	var b strings.Builder
	b.Grow(n)
	for i := range vals {
		b.WriteString(vals[i].s)
	}
	return b.String()
}

func (e *plus) eval(st *state) Value {
	var buf [16]Value
	vals := st.evalAll(buf[:0], e.parts)
	if allStrings(vals) {
		return StringValue(join(vals))
	}
	return sumOf(vals)
}

// sumOf adds from left to right.
func sumOf(vals []Value) Value {
	v := vals[0]
	for _, w := range vals[1:] {
		v = add(v, w)
	}
	return v
}

func add(a, b Value) Value {
	switch {
	case a.kind == String && b.kind == String:
		checkSize(len(a.s) + len(b.s))
		return StringValue(a.s + b.s)
	case a.kind == b.kind && (a.kind == List || a.kind == Tuple):
		checkSize(48 * (len(a.Items()) + len(b.Items())))
		items := append(append(make([]Value, 0, len(a.Items())+len(b.Items())), a.Items()...), b.Items()...)
		return Value{kind: a.kind, ref: &items}
	}
	return arithmetic("+", a, b)
}

func (e *tilde) eval(st *state) Value {
	var b []byte
	for _, p := range e.parts {
		b = appendStr(b, p.eval(st))
		checkSize(len(b))
	}
	return StringValue(string(b))
}

// checkSize refuses values that outgrow every prompt.
func checkSize(n int) {
	if n > defaultMaxOutput {
		failWith(ErrBounds, "value of %d bytes", n)
	}
}

func (e *negExpr) eval(st *state) Value {
	v := e.of.eval(st)
	switch {
	case v.kind == Float && e.minus:
		return FloatValue(-v.float())
	case v.kind == Float:
		return v
	case v.kind != Int && v.kind != Bool:
		fail("sign before a %s", v.kind)
	case e.minus:
		return IntValue(-v.n)
	}
	return IntValue(v.n)
}

func (e *binary) eval(st *state) Value {
	a, b := e.a.eval(st), e.b.eval(st)
	if e.op == "%" && a.kind == String {
		return StringValue(percentFormat(a.s, b))
	}
	if e.op == "*" {
		if a.kind == Int && (b.kind == String || b.kind == List) {
			a, b = b, a
		}
		if b.kind == Int || b.kind == Bool {
			switch a.kind {
			case String:
				return StringValue(repeat(a.s, b.n))
			case List:
				return repeatList(a, b.n)
			}
		}
	}
	return arithmetic(e.op, a, b)
}

func repeat(s string, n int64) string {
	if n <= 0 || s == "" {
		return ""
	}
	if n > defaultMaxOutput/int64(len(s)) {
		failWith(ErrBounds, "string repeated %d times", n)
	}
	return strings.Repeat(s, int(n))
}

func repeatList(v Value, n int64) Value {
	items := v.Items()
	if len(items) > 0 && n > maxSteps/int64(len(items)) {
		failWith(ErrBounds, "list repeated %d times", n)
	}
	var out []Value
	for range max(n, 0) {
		out = append(out, items...)
	}
	return ListValue(out)
}

// arithmetic applies a numeric operator.
func arithmetic(op string, a, b Value) Value {
	x, ok1 := a.number()
	y, ok2 := b.number()
	if !ok1 || !ok2 {
		if a.kind == Undefined || b.kind == Undefined {
			fail("undefined value %q in %s", a.s+b.s, op)
		}
		fail("unsupported operand types for %s: %s and %s", op, a.kind, b.kind)
	}
	if a.kind <= Int && b.kind <= Int && op != "/" {
		if v, ok := intArithmetic(op, a.n, b.n); ok {
			return v
		}
	}
	switch op {
	case "+":
		return FloatValue(x + y)
	case "-":
		return FloatValue(x - y)
	case "*":
		return FloatValue(x * y)
	case "**":
		return FloatValue(math.Pow(x, y))
	}
	if y == 0 {
		fail("division by zero")
	}
	switch op {
	case "/":
		return FloatValue(x / y)
	case "//":
		return FloatValue(math.Floor(x / y))
	}
	m := math.Mod(x, y)
	if m != 0 && (m < 0) != (y < 0) {
		m += y
	}
	return FloatValue(m)
}

func intArithmetic(op string, x, y int64) (Value, bool) {
	switch op {
	case "+":
		return IntValue(x + y), true
	case "-":
		return IntValue(x - y), true
	case "*":
		return IntValue(x * y), true
	case "**":
		if y < 0 {
			return Value{}, false
		}
		f := math.Pow(float64(x), float64(y))
		return IntValue(int64(f)), math.Abs(f) < 1<<53
	}
	if y == 0 {
		fail("division by zero")
	}
	q, m := x/y, x%y
	if m != 0 && (m < 0) != (y < 0) {
		q, m = q-1, m+y
	}
	if op == "//" {
		return IntValue(q), true
	}
	return IntValue(m), true
}

func (e *compare) eval(st *state) Value {
	left := e.first.eval(st)
	for i, op := range e.ops {
		right := e.rest[i].eval(st)
		if !compareValues(op, left, right) {
			return BoolValue(false)
		}
		left = right
	}
	return BoolValue(true)
}

func compareValues(op string, a, b Value) bool {
	switch op {
	case "==":
		return equal(a, b)
	case "!=":
		return !equal(a, b)
	case "in":
		return contains(b, a)
	case "not in":
		return !contains(b, a)
	}
	c := order(a, b)
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

// order compares two values that Python can order.
func order(a, b Value) int {
	if a.kind == String && b.kind == String {
		return strings.Compare(a.s, b.s)
	}
	if x, ok := a.number(); ok {
		if y, ok := b.number(); ok {
			return cmp.Compare(x, y)
		}
	}
	if a.kind == b.kind && (a.kind == List || a.kind == Tuple) {
		x, y := a.Items(), b.Items()
		for i := range min(len(x), len(y)) {
			if !equal(x[i], y[i]) {
				return order(x[i], y[i])
			}
		}
		return cmp.Compare(len(x), len(y))
	}
	fail("a %s and a %s have no order", a.kind, b.kind)
	return 0
}

// contains is "v in of".
func contains(of, v Value) bool {
	switch of.kind {
	case Undefined:
		return false
	case String:
		if v.kind != String {
			fail("'in <str>' requires a str, not %s", v.kind)
		}
		return strings.Contains(of.s, v.s)
	case List, Tuple:
		for _, it := range of.Items() {
			if equal(it, v) {
				return true
			}
		}
		return false
	case DictKind:
		_, ok := of.Dict().getValue(v)
		return ok
	}
	fail("a %s is not iterable", of.kind)
	return false
}
